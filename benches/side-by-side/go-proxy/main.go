// A replica of upstream's upload proxy, and the upload server behind all measured proxies.
//
// Like upstream's proxy, it uses httputil.ReverseProxy with a new transport for every request
// (client certificate, own roots, HTTP/1.1). It leaves out upstream's earlier steps: verifying the
// token, reading the PVC and the ConfigMap.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: goproxy sink CERTS ADDRESS | goproxy proxy CERTS ADDRESS UPSTREAM")
	}
	role, certs, address := os.Args[1], os.Args[2], os.Args[3]
	server := &http.Server{
		Addr: address,
		// Without this, net/http would offer HTTP/2.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{},
	}
	switch role {
	case "sink":
		server.Handler = http.HandlerFunc(discard)
		server.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
		server.TLSConfig.ClientCAs = roots(certs)
	case "proxy":
		upstream, err := url.Parse(os.Args[4])
		if err != nil {
			log.Fatal(err)
		}
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			forward(certs, upstream, w, r)
		})
	}
	log.Fatal(server.ListenAndServeTLS(certs+"/server.crt", certs+"/server.key"))
}

func discard(w http.ResponseWriter, r *http.Request) {
	buffer := make([]byte, 256<<10)
	for {
		if _, err := r.Body.Read(buffer); err == io.EOF {
			return
		} else if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
}

func forward(certs string, upstream *url.URL, w http.ResponseWriter, r *http.Request) {
	identity, err := tls.LoadX509KeyPair(certs+"/client.crt", certs+"/client.key")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	proxy := httputil.ReverseProxy{
		Director: func(r *http.Request) {
			r.URL.Scheme, r.URL.Host, r.URL.RawQuery = upstream.Scheme, upstream.Host, ""
			if _, ok := r.Header["User-Agent"]; !ok {
				// An empty value keeps Go from adding its own User-Agent.
				r.Header.Set("User-Agent", "")
			}
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{identity},
			RootCAs:      roots(certs),
			MinVersion:   tls.VersionTLS12,
		}},
	}
	proxy.ServeHTTP(w, r)
}

func roots(certs string) *x509.CertPool {
	pem, err := os.ReadFile(certs + "/ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool
}
