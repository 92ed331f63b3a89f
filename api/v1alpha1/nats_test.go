package v1alpha1

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// certificate makes a self-signed certificate and its key, in PEM form.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

const natsConfig = `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
discovery: {file: {path: workers.yaml}}
spec:
  eventPlane:
    nats:
      url: tls://a:4222
`

// loadNATS loads a configuration with more lines for NATS, next to some files.
func loadNATS(t *testing.T, dir, more string) (*EndpointPickerConfig, error) {
	t.Helper()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(natsConfig+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// goodSeed has the form of a seed; no server knows it.
var goodSeed = "SU" + strings.Repeat("A2", 28)

var goodCredentials = "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n" +
	"-----BEGIN USER NKEY SEED-----\n" + goodSeed + "\n------END USER NKEY SEED------\n"

func TestLoadResolvesSecrets(t *testing.T) {
	cert, key := certificate(t)
	dir := writeFiles(t, map[string]string{"crt": cert, "key": key, "user": "u\n", "password": "p", "token": "t", "nk": goodSeed + "\n", "creds": goodCredentials})
	const certificates = "      tls: {caFile: crt, certFile: crt, keyFile: key}\n"
	for _, c := range []struct {
		more string
		get  func(*NATSSpec) []string
		want []string
	}{
		{certificates, func(n *NATSSpec) []string { return []string{n.TLS.CAFile, n.TLS.CertFile, n.TLS.KeyFile} }, []string{"crt", "crt", "key"}},
		{"      credentialsFile: creds\n", func(n *NATSSpec) []string { return []string{n.CredentialsFile} }, []string{"creds"}},
		{"      nkeyFile: nk\n", func(n *NATSSpec) []string { return []string{n.NKeyFile} }, []string{"nk"}},
		{"      userFile: user\n      passwordFile: password\n", func(n *NATSSpec) []string { return []string{n.UserFile, n.PasswordFile} }, []string{"user", "password"}},
		{"      tokenFile: ../" + filepath.Base(dir) + "/token\n", func(n *NATSSpec) []string { return []string{n.TokenFile} }, []string{"token"}},
		{"      tokenFile: " + dir + "/token\n", func(n *NATSSpec) []string { return []string{n.TokenFile} }, []string{"token"}},
	} {
		cfg, err := loadNATS(t, dir, c.more)
		if err != nil {
			t.Errorf("%s: %v", c.more, err)
			continue
		}
		for i, got := range c.get(&cfg.Spec.EventPlane.NATS) {
			if want := filepath.Join(dir, c.want[i]); got != want {
				t.Errorf("%s: file %s, want %s", c.more, got, want)
			}
		}
	}
}

// TestLoadChecksSecrets: errors name the file, the line and the field, and never
// show what a secret file holds.
func TestLoadChecksSecrets(t *testing.T) {
	cert, key := certificate(t)
	_, otherKey := certificate(t)
	dir := writeFiles(t, map[string]string{
		"crt": cert, "key": key, "other-key": otherKey, "user": "u", "empty": "\n",
		"s3cret": "s3cret", "huge": strings.Repeat("s3cret", maxSecret), "no-seed": strings.Replace(goodCredentials, goodSeed, "s3cret", 1),
	})
	for _, c := range []struct{ more, field, text string }{
		{"      tls: {caFile: absent}\n", "tls.caFile", "absent"},
		{"      tls: {caFile: s3cret}\n", "tls.caFile", "no certificate"},
		{"      tls: {caFile: .}\n", "tls.caFile", "is no file"},
		{"      tls: {certFile: crt, keyFile: absent}\n", "tls.keyFile", "absent"},
		{"      tls: {certFile: s3cret, keyFile: key}\n", "tls.certFile", "no certificate with its key"},
		{"      tls: {certFile: crt, keyFile: other-key}\n", "tls.certFile", "no certificate with its key"},
		{"      credentialsFile: absent\n", "credentialsFile", "absent"},
		{"      credentialsFile: s3cret\n", "credentialsFile", "nsc generate creds"},
		{"      credentialsFile: no-seed\n", "credentialsFile", "no seed"},
		{"      nkeyFile: s3cret\n", "nkeyFile", "starts with SU"},
		{"      userFile: user\n      passwordFile: empty\n", "passwordFile", "is empty"},
		{"      userFile: absent\n      passwordFile: user\n", "userFile", "absent"},
		{"      tokenFile: huge\n", "tokenFile", "larger than"},
	} {
		_, err := loadNATS(t, dir, c.more)
		field := (*FieldError)(nil)
		if !errors.As(err, &field) {
			t.Errorf("%s: error %v, want one of a field", c.more, err)
			continue
		}
		if want := "spec.eventPlane.nats." + c.field; field.Path != want || field.Line < 8 || filepath.Base(field.File) != "config.yaml" || !strings.Contains(field.Message, c.text) {
			t.Errorf("%s: %v, want %s and %q", c.more, err, want, c.text)
		}
		if shown := strings.ReplaceAll(err.Error(), filepath.Join(dir, "s3cret"), ""); strings.Contains(shown, "s3cret") {
			t.Errorf("%s: the error shows the secret: %v", c.more, err)
		}
	}
}

// TestLoadWithoutEvents: nothing is looked for that nobody will use.
func TestLoadWithoutEvents(t *testing.T) {
	if _, err := loadNATS(t, t.TempDir(), "      tokenFile: absent\n    disabled: true\n"); err != nil {
		t.Error(err)
	}
}
