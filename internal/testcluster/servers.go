package testcluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// Names of files in the cluster's folder.
const (
	keyFile    = "sa.key" // signs the tokens of service accounts
	tokensFile = "tokens.csv"
	certDir    = "certs" // where the API server keeps the certificate it makes itself
	certFile   = certDir + "/apiserver.crt"
)

// adminToken is known to everybody on this machine: there is nothing to protect.
const adminToken = "admin"

// attempts to find ports: between finding a free one and using it somebody else
// may take it.
const attempts = 5

func (c *Cluster) writeKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(c.file(keyFile), block, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.file(tokensFile), []byte(adminToken+",admin,admin,system:masters\n"), 0o600)
}

// startEtcd finds ports for etcd and starts it.
func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	for range attempts {
		if err = c.launchEtcd(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (c *Cluster) launchEtcd(ctx context.Context) error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	port, err := freePort(loopback)
	if err != nil {
		return err
	}
	peers, err := freePort(loopback)
	if err != nil {
		return err
	}
	c.etcdPort = port
	peerURL := "http://" + hostPort(loopback, peers)
	p, err := StartProcess("etcd", nil, c.program(Etcd),
		"--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", c.etcdURL(), "--advertise-client-urls", c.etcdURL(),
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
		"--initial-cluster", "default="+peerURL)
	if err != nil {
		return err
	}
	c.etcd = p
	return c.awaitReady(ctx, p, c.etcdURL()+"/readyz", nil)
}

func (c *Cluster) etcdURL() string {
	return "http://" + hostPort(netip.AddrFrom4([4]byte{127, 0, 0, 1}), c.etcdPort)
}

// startAPI finds a port for the API server and starts it.
func (c *Cluster) startAPI(ctx context.Context) (err error) {
	for range attempts {
		if c.apiPort, err = freePort(c.address); err != nil {
			return err
		}
		if err = c.launchAPI(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// launchAPI starts the API server on the port that was found.
func (c *Cluster) launchAPI(ctx context.Context) error {
	p, err := StartProcess("kube-apiserver", nil, c.program(APIServer),
		"--etcd-servers", c.etcdURL(),
		"--bind-address", c.address.String(), "--advertise-address", c.address.String(),
		"--secure-port", strconv.Itoa(c.apiPort), "--cert-dir", c.file(certDir),
		"--token-auth-file", c.file(tokensFile),
		"--service-account-key-file", c.file(keyFile), "--service-account-signing-key-file", c.file(keyFile),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-cluster-ip-range", "10.89.0.0/16",
		"--authorization-mode", "RBAC",
		// Nobody makes the service accounts "default" that pods would be given.
		"--disable-admission-plugins", "ServiceAccount",
		// The Service kubernetes needs no endpoints, and the loopback may not be one.
		"--endpoint-reconciler-type", "none")
	if err != nil {
		return err
	}
	c.api = p
	return c.awaitReady(ctx, p, c.apiURL()+"/readyz", c.file)
}

func (c *Cluster) apiURL() string { return "https://" + hostPort(c.address, c.apiPort) }

// awaitReady waits until a server answers 200. file is nil for plain HTTP, else
// says where the server's certificate is.
func (c *Cluster) awaitReady(ctx context.Context, p *Process, url string, file func(string) string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := probe(ctx, url, file)
		if last == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended before it was ready; it wrote:\n%s", p.name, p.tail())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("%s is not ready: %w (last: %w); it wrote:\n%s", p.name, ctx.Err(), last, p.tail())
		case <-tick.C:
		}
	}
}

// probe asks once whether a server is ready.
func probe(ctx context.Context, url string, file func(string) string) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if file != nil {
		cert, err := os.ReadFile(file(certFile))
		if err != nil {
			return err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(cert) {
			return errors.New("the certificate is not written yet")
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// freePort is a port that nobody listens on. It is below those that the kernel
// gives to clients: none of them may have it while the server is down.
func freePort(addr netip.Addr) (int, error) {
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			return 0, err
		}
		port := 20000 + int(n.Int64())
		if l, err := net.Listen("tcp", hostPort(addr, port)); err == nil {
			_ = l.Close() // nothing was accepted
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port at %s", addr)
}

func hostPort(addr netip.Addr, port int) string {
	return netip.AddrPortFrom(addr, uint16(port)).String()
}
