package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// serverTLS returns how ext-proc is encrypted, nil for not at all.
func serverTLS(spec *v1alpha1.TLSSpec, log *slog.Logger) (*tls.Config, error) {
	if spec == nil {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if spec.SelfSigned {
		c, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("server.extProcTLS: make a certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{c}
		return cfg, nil
	}
	pair := &certificatePair{certFile: spec.CertFile, keyFile: spec.KeyFile, every: lookForCertificates, log: log}
	if err := pair.load(); err != nil {
		return nil, fmt.Errorf("server.extProcTLS: %w", err)
	}
	cfg.GetCertificate = pair.get
	return cfg, nil
}

// selfSignedFor is how long a certificate lasts that is made at every start: longer
// than any process.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// selfSigned makes a certificate that nobody has signed, for gateways that encrypt
// and check nothing.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "warmpath"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
	}
	if host, err := os.Hostname(); err == nil && host != "localhost" {
		c.DNSNames = append(c.DNSNames, host)
	}
	if ip := net.ParseIP(os.Getenv("POD_IP")); ip != nil {
		c.IPAddresses = append(c.IPAddresses, ip)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// lookForCertificates is how often is looked whether the files of a certificate
// changed, at most: only when somebody connects.
const lookForCertificates = 2 * time.Second

// certificatePair is a certificate and its key in files, which are read again when
// they change.
type certificatePair struct {
	certFile, keyFile string
	every             time.Duration // between two looks, at least
	log               *slog.Logger

	mu     sync.Mutex
	now    *tls.Certificate // never nil once loaded
	files  []os.FileInfo    // as of now
	looked time.Time
	failed string // why the files could not be used, of which the log has told
}

// load reads the files for the first time.
func (p *certificatePair) load() error {
	files := look([]string{p.certFile, p.keyFile})
	c, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("certFile %s and keyFile %s: %w", p.certFile, p.keyFile, err)
	}
	p.now, p.files, p.looked = &c, files, time.Now()
	return nil
}

// get returns the certificate for a new connection. One that cannot be used never
// takes the place of one that can.
func (p *certificatePair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.looked) >= p.every {
		p.looked = now
		p.renew()
	}
	return p.now, nil
}

func (p *certificatePair) renew() {
	files := look([]string{p.certFile, p.keyFile})
	if sameFiles(files, p.files) {
		p.failed = ""
		return
	}
	c, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	switch {
	case err == nil:
		p.now, p.files, p.failed = &c, files, ""
		p.log.Info("the certificate of ext-proc was read again", "cert_file", p.certFile)
	case p.failed != err.Error():
		p.failed = err.Error()
		p.log.Error("the new certificate of ext-proc cannot be used; the one before stays in use", "error", err,
			"cert_file", p.certFile, "key_file", p.keyFile)
	}
}
