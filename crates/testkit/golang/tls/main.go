// A peer for a TLS connection.
//
// `tls client ADDRESS` sends its standard input and prints what it receives.
// `tls server CERTIFICATE KEY` prints its address. When its first client has sent a close_notify, it
// returns everything that it received.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(address string) {
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	check(err)
	go func() {
		_, err := io.Copy(connection, os.Stdin)
		check(err)
		check(connection.CloseWrite())
	}()
	_, err = io.Copy(os.Stdout, connection)
	check(err)
}

func server(certificate, key string) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println(listener.Addr())
	plain, err := listener.Accept()
	check(err)
	connection := tls.Server(plain, &tls.Config{Certificates: []tls.Certificate{pair}})
	said, err := io.ReadAll(connection)
	check(err)
	_, err = connection.Write(said)
	check(err)
	check(connection.Close())
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "client":
		client(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "server":
		server(os.Args[2], os.Args[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: tls client ADDRESS, or tls server CERTIFICATE KEY")
		os.Exit(2)
	}
}
