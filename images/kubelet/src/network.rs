//! The network of a node. Each pod has its own address, and pods reach only the servers that a
//! test opens.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::fail::OrFail;
use testkit::tools;

use crate::PORT;
use crate::versions::CdiVersion;

/// The address at which pods reach servers on this machine, once these are opened.
pub const NODE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);

/// The address from which the node connects to pods. It differs from [`NODE`], because the local
/// port of such a connection may equal a server's port.
const PROBER: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 254);

/// The addresses of services of a node (RFC 3927 §2.1).
const LINK_LOCAL: &str = "169.254.0.0/16";

const BRIDGE: &str = "cdi0";

/// A network namespace with a bridge for the pods. It is removed when dropped.
pub struct Network {
    name: String,
    pods: AtomicU8,
    version: Option<CdiVersion>,
}

/// A pod's network namespace. It is removed when dropped.
pub struct Sandbox {
    name: String,
    address: Ipv4Addr,
}

impl Network {
    /// An empty network.
    pub fn new() -> Self {
        Self::with_version(None)
    }

    /// An empty network of a cluster with this version of CDI.
    pub fn with_version(version: Option<CdiVersion>) -> Self {
        static NETWORKS: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = format!("cdi-{}-{number}", std::process::id());
        ip(&["netns", "add", &name]);
        let network = Self { name, pods: AtomicU8::new(1), version };
        network.ip(&["link", "set", "lo", "up"]);
        network.ip(&["link", "add", BRIDGE, "type", "bridge"]);
        // The first address is the source of the node's connections.
        for address in [PROBER, NODE] {
            network.ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE]);
        }
        network.ip(&["link", "set", BRIDGE, "up"]);
        network
    }

    pub(crate) fn version(&self) -> Option<CdiVersion> {
        self.version
    }

    /// Makes a pod's network namespace with the next free address.
    pub fn sandbox(&self) -> Sandbox {
        let last = self.pods.fetch_add(1, Ordering::Relaxed) + 1;
        let [a, b, c, _] = NODE.octets();
        let sandbox = Sandbox {
            name: format!("{}-{last}", self.name),
            address: Ipv4Addr::new(a, b, c, last),
        };
        let plug = format!("pod{last}");
        ip(&["netns", "add", &sandbox.name]);
        let ends = ["link", "add", &plug, "type", "veth", "peer", "name", "eth0"];
        self.ip(&[&ends[..], &["netns", &sandbox.name]].concat());
        self.ip(&["link", "set", &plug, "master", BRIDGE, "up"]);
        sandbox.ip(&["link", "set", "lo", "up"]);
        sandbox.ip(&["address", "add", &format!("{}/24", sandbox.address), "dev", "eth0"]);
        sandbox.ip(&["link", "set", "eth0", "up"]);
        // To services of the node.
        sandbox.ip(&["route", "add", LINK_LOCAL, "dev", "eth0"]);
        sandbox
    }

    /// Makes a server on this machine's loopback reachable for pods, at [`NODE`] and the same
    /// port.
    pub fn open(&self, server: SocketAddr) {
        self.forward(SocketAddr::from((NODE, server.port())), move || TcpStream::connect(server));
    }

    /// Makes the Service of an upload pod, whose port depends on the version of CDI. Returns its
    /// address and port.
    pub fn serve_uploads(&self, pod: Ipv4Addr) -> (Ipv4Addr, u16) {
        let port = self.version.map_or(PORT, CdiVersion::upload_port);
        if port == PORT {
            // A Service without an address of its own.
            return (pod, port);
        }
        let namespace = File::open(path(&self.name)).or_fail(&self.name);
        self.forward((NODE, port).into(), move || {
            enter(&namespace);
            TcpStream::connect((pod, PORT))
        });
        (NODE, port)
    }

    /// Lets pods reach a server on this machine's loopback as a service of the node: at the
    /// link-local `address`.
    pub fn open_service(&self, address: SocketAddrV4, server: SocketAddr) {
        self.ip(&["address", "add", &format!("{}/32", address.ip()), "dev", BRIDGE]);
        self.forward(address.into(), move || TcpStream::connect(server));
    }

    fn forward(
        &self,
        address: SocketAddr,
        connect: impl Fn() -> io::Result<TcpStream> + Send + 'static,
    ) {
        let listener = self.inside(|| TcpListener::bind(address)).or_fail(address);
        // A socket stays in the network namespace in which it was made, so this thread can accept
        // connections outside of it.
        thread::spawn(move || {
            for pod in listener.incoming() {
                if let (Ok(pod), Ok(server)) = (pod, connect()) {
                    join(&pod, &server);
                }
            }
        });
    }

    /// Connects from the node to a pod, as probes and scrapes do.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.inside(|| TcpStream::connect(address))
    }

    fn ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.name], words].concat());
    }

    /// Runs `work` on a thread in this network namespace.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(path(&self.name)).or_fail(&self.name);
        let thread = || {
            enter(&namespace);
            work()
        };
        thread::scope(|scope| scope.spawn(thread).join().ok().or_fail("a thread in a network"))
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// The address of the pod.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The file of the network namespace.
    pub fn path(&self) -> PathBuf {
        path(&self.name)
    }

    fn ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.name], words].concat());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
    }
}

/// Moves this thread into a network namespace.
fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .or_fail("enter a network");
}

/// The file in which ip(8) keeps the namespace with this name.
fn path(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

fn ip(words: &[&str]) {
    tools::run("ip", words);
}

/// Relays bytes in both directions until both sides have closed.
fn join(left: &TcpStream, right: &TcpStream) {
    for (from, to) in [(left, right), (right, left)] {
        if let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) {
            thread::spawn(move || {
                // Errors are ignored: the test's client or server notices a broken connection.
                io::copy(&mut from, &mut to).ok();
                to.shutdown(Shutdown::Write).ok();
            });
        }
    }
}
