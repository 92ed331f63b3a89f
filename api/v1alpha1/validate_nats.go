package v1alpha1

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// maxSecret is far above any file of certificates.
const maxSecret = 1 << 20

// file is a field that names a file.
type file struct {
	field string // path of the field
	name  *string
	check func(content []byte) error // what Load can tell about the content
}

// files returns the fields that name a file, those that are set.
func (n *NATSSpec) files(path string) []file {
	all := []file{
		{path + ".credentialsFile", &n.CredentialsFile, isCredentials},
		{path + ".nkeyFile", &n.NKeyFile, isSeed},
		{path + ".userFile", &n.UserFile, nil},
		{path + ".passwordFile", &n.PasswordFile, nil},
		{path + ".tokenFile", &n.TokenFile, nil},
	}
	if t := n.TLS; t != nil {
		all = append(all,
			file{path + ".tls.caFile", &t.CAFile, isCertificates},
			file{path + ".tls.certFile", &t.CertFile, nil}, // checked with its key
			file{path + ".tls.keyFile", &t.KeyFile, nil},
		)
	}
	set := all[:0]
	for _, f := range all {
		if *f.name != "" {
			set = append(set, f)
		}
	}
	return set
}

func (n *NATSSpec) check(p *problems, path string) {
	n.checkURLs(p, path+".url")
	if strings.ContainsAny(n.Namespace, " \t\r\n*>") {
		p.add(path+".namespace", "%q must be one plain name, without spaces, * or >", n.Namespace)
	}
	n.checkSecurity(p, path)
}

func (n *NATSSpec) checkURLs(p *problems, path string) {
	if n.URL == "" {
		return
	}
	list := strings.Split(n.URL, ",")
	for i, u := range list {
		name := "the URL"
		if len(list) > 1 {
			name = fmt.Sprintf("URL %d of %d", i+1, len(list))
		}
		checkURL(p, path, name, strings.TrimSpace(u), "nats", "tls", "ws", "wss")
		checkNoUser(p, path, name, strings.TrimSpace(u))
		if overWebSocket(u) != overWebSocket(list[0]) {
			p.add(path, "%s is of another kind than the first: use ws and wss for all, or for none", name)
		}
	}
}

// overWebSocket says which of the two kinds of servers a URL names: one client
// cannot use both.
func overWebSocket(u string) bool {
	u = strings.TrimSpace(u)
	return strings.HasPrefix(u, "ws://") || strings.HasPrefix(u, "wss://")
}

// checkNoUser refuses a URL with a user, password or token, which would show up in
// logs and lists of processes. It never repeats the URL.
func checkNoUser(p *problems, path, name, raw string) {
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		p.add(path, "%s must not hold a user, password or token; name the files that do in userFile and passwordFile, or in tokenFile", name)
	}
}

// checkSecurity checks which fields are set, not what the files hold.
func (n *NATSSpec) checkSecurity(p *problems, path string) {
	user := n.UserFile
	userField := ".userFile"
	if user == "" && n.PasswordFile != "" {
		user, userField = n.PasswordFile, ".passwordFile"
	}
	first := ""
	for _, m := range []struct{ field, file string }{
		{".credentialsFile", n.CredentialsFile},
		{".nkeyFile", n.NKeyFile},
		{userField, user},
		{".tokenFile", n.TokenFile},
	} {
		switch {
		case m.file == "":
		case first == "":
			first = m.field
		default:
			p.add(path+m.field, "not allowed together with %s; keep one of the two", first[1:])
		}
	}
	together(p, path, "userFile", n.UserFile, "passwordFile", n.PasswordFile)
	if t := n.TLS; t != nil {
		together(p, path+".tls", "certFile", t.CertFile, "keyFile", t.KeyFile)
		if t.InsecureSkipVerify && t.CAFile != "" {
			p.add(path+".tls.insecureSkipVerify", "not allowed together with caFile, which it would make useless")
		}
	}
}

// together reports a field that is set without the other one.
func together(p *problems, path, nameA, a, nameB, b string) {
	switch {
	case a != "" && b == "":
		p.add(path+"."+nameB, "required, since %s is set", nameA)
	case a == "" && b != "":
		p.add(path+"."+nameA, "required, since %s is set", nameB)
	}
}

// checkFiles reads the files, so that what is wrong with them is known before
// anything starts. Errors never show a content.
func (n *NATSSpec) checkFiles(p *problems, path string) {
	contents := map[string][]byte{}
	for _, f := range n.files(path) {
		content, err := readSecret(*f.name)
		if err == nil && f.check != nil {
			if err = f.check(content); err != nil {
				err = fmt.Errorf("%s %w", *f.name, err)
			}
		}
		if err != nil {
			p.add(f.field, "%s", err)
			continue
		}
		contents[f.field] = content
	}
	cert, key := contents[path+".tls.certFile"], contents[path+".tls.keyFile"]
	if cert == nil || key == nil {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		p.add(path+".tls.certFile", "%s and %s are no certificate with its key: %s", n.TLS.CertFile, n.TLS.KeyFile, err)
	}
}

// readSecret reads a file that must hold something.
func readSecret(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", name)
	case info.Size() > maxSecret:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSecret)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err == nil && len(bytes.TrimSpace(content)) == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	return content, err
}

func isCertificates(content []byte) error {
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return errors.New("holds no certificate in PEM form")
	}
	return nil
}

// The seed of a user: 32 bytes, what it is for and a checksum, in base 32.
var seed = regexp.MustCompile(`^SU[A-Z2-7]{56}$`)

func isSeed(content []byte) error {
	for line := range strings.Lines(string(content)) {
		if seed.MatchString(strings.TrimSpace(line)) {
			return nil
		}
	}
	return errors.New("holds no seed of a user, which starts with SU")
}

func isCredentials(content []byte) error {
	if !bytes.Contains(content, []byte("-----BEGIN NATS USER JWT-----")) {
		return errors.New("holds no BEGIN NATS USER JWT; write it with nsc generate creds")
	}
	return isSeed(content)
}
