// A vSphere that tests can ask for virtual machines: the simulator of VMware's own Go library, with two data centres.
//
// With the argument own-certificate it shows the certificate that VMware's program vcsim shows, whose RSA key has 1024 bits.
// Prints its URL, the SHA-1 thumbprint of its certificate, then a line of JSON for each virtual machine, and ends with its standard input.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type machine struct {
	Moref        string `json:"moref"`
	Uuid         string `json:"uuid"`
	InstanceUuid string `json:"instance_uuid"`
	Disk         string `json:"disk"`
	Snapshot     string `json:"snapshot"`
}

// Ends the program, after deferred calls.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	model := simulator.VPX()
	model.Datacenter = 2
	defer model.Remove()
	check(model.Create())
	model.Service.TLS = &tls.Config{}
	if len(os.Args) < 2 || os.Args[1] != "own-certificate" {
		model.Service.TLS.Certificates = []tls.Certificate{selfSigned()}
	}
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("user", "secret")}
	server := model.Service.NewServer()
	machines := inventory(context.Background(), server.URL)
	fmt.Println("https://" + server.URL.Host)
	fmt.Printf("% x\n", sha1.Sum(server.Certificate().Raw))
	for _, one := range machines {
		line, err := json.Marshal(one)
		check(err)
		fmt.Println(string(line))
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
}

// A certificate with which clients can know a server: they refuse RSA keys of 1024 bits.
func selfSigned() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
}

// All virtual machines, each with a snapshot "first" and one "second" below it.
func inventory(ctx context.Context, address *url.URL) []machine {
	client, err := govmomi.NewClient(ctx, address, true)
	check(err)
	container, err := view.NewManager(client.Client).CreateContainerView(
		ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	check(err)
	var found []mo.VirtualMachine
	check(container.Retrieve(ctx, []string{"VirtualMachine"}, []string{"config"}, &found))
	var machines []machine
	for _, one := range found {
		vm := object.NewVirtualMachine(client.Client, one.Self)
		for _, name := range []string{"first", "second"} {
			task, err := vm.CreateSnapshot(ctx, name, "", false, false)
			check(err)
			check(task.Wait(ctx))
		}
		var after mo.VirtualMachine
		pc := property.DefaultCollector(client.Client)
		check(pc.RetrieveOne(ctx, one.Self, []string{"snapshot"}, &after))
		disks := object.VirtualDeviceList(one.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
		backing := disks[0].GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
		machines = append(machines, machine{
			Moref:        one.Self.Value,
			Uuid:         one.Config.Uuid,
			InstanceUuid: one.Config.InstanceUuid,
			Disk:         backing.GetVirtualDeviceFileBackingInfo().FileName,
			Snapshot:     after.Snapshot.CurrentSnapshot.Value,
		})
	}
	return machines
}
