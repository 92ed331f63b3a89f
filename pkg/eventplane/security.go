package eventplane

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Security says how a plane shows who it is, and how it knows the servers. Secrets
// are never given here, only the files that hold them. The files are read for every
// connection and now and then in between: a secret can be replaced at any time.
type Security struct {
	TLS *TLS // nil: encrypted where a URL or the server says so

	// At most one of these ways to sign in.

	CredentialsFile string // a user's JWT and seed, as nsc writes them
	NKeyFile        string // the seed of a user's nkey
	UserFile        string // with PasswordFile
	PasswordFile    string
	TokenFile       string
}

// TLS makes encryption a must. Files are PEM.
type TLS struct {
	CAFile             string // authorities of the servers; empty: those of the system
	CertFile           string // shown to servers that ask; with KeyFile
	KeyFile            string
	ServerName         string // in the servers' certificates; empty: the host of the URL
	InsecureSkipVerify bool   // any certificate will do
}

// Validate says whether the fields go together. It reads no file.
func (s *Security) Validate() error {
	ways := 0
	for _, file := range []string{s.CredentialsFile, s.NKeyFile, s.UserFile, s.TokenFile} {
		if file != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("more than one of credentialsFile, nkeyFile, userFile and tokenFile is set; keep one")
	case (s.UserFile == "") != (s.PasswordFile == ""):
		return errors.New("userFile and passwordFile go together; set both or none")
	case s.TLS != nil && (s.TLS.CertFile == "") != (s.TLS.KeyFile == ""):
		return errors.New("tls.certFile and tls.keyFile go together; set both or none")
	case s.TLS != nil && s.TLS.CAFile != "" && s.TLS.InsecureSkipVerify:
		return errors.New("tls.insecureSkipVerify makes tls.caFile useless; keep one of the two")
	}
	return nil
}

// rereadEvery is how often the files are looked at while a connection stands, so
// that a broken one is known before it is needed.
const rereadEvery = 10 * time.Second

// secrets holds what the files said last. A file that cannot be used any more
// leaves in force what was there before.
type secrets struct {
	from Security
	log  *slog.Logger

	mu      sync.Mutex
	now     material
	problem string // with the files, as it was last logged
	changes int    // so far
}

// material is the content of the files, each also in the form that NATS takes.
type material struct {
	caFile []byte
	roots  *x509.CertPool

	certFile, keyFile []byte
	cert              tls.Certificate

	signIn         []byte // the file or files of the way to sign in
	user, password string
	token          string
	jwt, nkey      string
	sign           nats.SignatureHandler
}

// newSecrets reads all files. It returns secrets together with an error when only a
// file is at fault.
func newSecrets(from Security, log *slog.Logger) (*secrets, error) {
	if err := from.Validate(); err != nil {
		return nil, err
	}
	s := &secrets{from: from, log: log}
	return s, s.now.read(&from)
}

// current reads the files again and returns what counts now.
func (s *secrets) current() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.now
	err := s.now.read(&s.from)
	if !before.equal(&s.now) {
		s.changes++
		s.log.Info("secrets of the event plane changed; the next connection uses the new ones")
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != s.problem {
		if s.problem = problem; err != nil {
			s.log.Warn("a secret of the event plane cannot be used; what was there before stays in force", "error", err)
		} else {
			s.log.Info("all secrets of the event plane can be used again")
		}
	}
	return new(s.now)
}

// trouble is what was wrong with the files at the last look, nil for nothing.
func (s *secrets) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == "" {
		return nil
	}
	return errors.New(s.problem)
}

// changed is how often the files changed so far.
func (s *secrets) changed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

func (m *material) equal(other *material) bool {
	return bytes.Equal(m.caFile, other.caFile) && bytes.Equal(m.certFile, other.certFile) &&
		bytes.Equal(m.keyFile, other.keyFile) && bytes.Equal(m.signIn, other.signIn)
}

// read takes in the files. One that is missing or broken leaves its part as it is.
// Errors name the field and the file, and never show a content.
func (m *material) read(from *Security) error {
	var errs []error
	if t := from.TLS; t != nil {
		errs = append(errs, m.readAuthorities(t), m.readCertificate(t))
	}
	switch {
	case from.CredentialsFile != "":
		errs = append(errs, m.readCredentials(from.CredentialsFile))
	case from.NKeyFile != "":
		errs = append(errs, m.readNKey(from.NKeyFile))
	case from.UserFile != "":
		errs = append(errs, m.readUser(from.UserFile, from.PasswordFile))
	case from.TokenFile != "":
		errs = append(errs, m.readToken(from.TokenFile))
	}
	return errors.Join(errs...)
}

func (m *material) readAuthorities(t *TLS) error {
	if t.CAFile == "" {
		return nil
	}
	content, err := readSecret("tls.caFile", t.CAFile)
	if err != nil || bytes.Equal(content, m.caFile) {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return fmt.Errorf("tls.caFile: %s holds no certificate in PEM form", t.CAFile)
	}
	m.caFile, m.roots = content, roots
	return nil
}

func (m *material) readCertificate(t *TLS) error {
	if t.CertFile == "" {
		return nil
	}
	certFile, err := readSecret("tls.certFile", t.CertFile)
	if err != nil {
		return err
	}
	keyFile, err := readSecret("tls.keyFile", t.KeyFile)
	if err != nil || bytes.Equal(certFile, m.certFile) && bytes.Equal(keyFile, m.keyFile) {
		return err
	}
	cert, err := tls.X509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("tls.certFile: %s and %s are no certificate with its key: %w", t.CertFile, t.KeyFile, err)
	}
	m.certFile, m.keyFile, m.cert = certFile, keyFile, cert
	return nil
}

func (m *material) readCredentials(name string) error {
	content, err := readSecret("credentialsFile", name)
	if err != nil || bytes.Equal(content, m.signIn) {
		return err
	}
	var o nats.Options
	if err := nats.UserCredentialBytes(content)(&o); err != nil {
		return fmt.Errorf("credentialsFile: %s: %w", name, err)
	}
	jwt, err := o.UserJWT()
	if err == nil && strings.Count(jwt, ".") != 2 {
		// The library takes a file that it cannot make sense of for a bare JWT.
		err = errors.New("no JWT of a user")
	}
	if err == nil {
		_, err = o.SignatureCB([]byte("try"))
	}
	if err != nil {
		return fmt.Errorf("credentialsFile: %s holds no credentials of a user; write it with nsc generate creds: %w", name, err)
	}
	m.signIn, m.jwt, m.sign = content, jwt, o.SignatureCB
	return nil
}

func (m *material) readNKey(name string) error {
	content, err := readSecret("nkeyFile", name)
	if err != nil || bytes.Equal(content, m.signIn) {
		return err
	}
	var public, private nats.Options
	option, err := nats.NkeyOptionFromSeed(name)
	if err == nil {
		err = option(&public)
	}
	if err != nil {
		return fmt.Errorf("nkeyFile: %s holds no seed of a user, which starts with SU: %w", name, err)
	}
	// The library's own way to sign reads the file for every signature, and could not
	// if the file was broken by then. This one signs with what was read.
	err = nats.UserCredentialBytes(nil, content)(&private)
	if err == nil {
		_, err = private.SignatureCB([]byte("try"))
	}
	if err != nil {
		return fmt.Errorf("nkeyFile: %s: %w", name, err)
	}
	if again, err := readSecret("nkeyFile", name); err != nil || !bytes.Equal(again, content) {
		return fmt.Errorf("nkeyFile: %s changed while it was read", name)
	}
	m.signIn, m.nkey, m.sign = content, public.Nkey, private.SignatureCB
	return nil
}

func (m *material) readUser(userFile, passwordFile string) error {
	user, err := readSecret("userFile", userFile)
	if err != nil {
		return err
	}
	password, err := readSecret("passwordFile", passwordFile)
	if err != nil {
		return err
	}
	m.user, m.password = line(user), line(password)
	m.signIn = []byte(m.user + "\n" + m.password)
	return nil
}

func (m *material) readToken(name string) error {
	token, err := readSecret("tokenFile", name)
	if err != nil {
		return err
	}
	m.signIn, m.token = token, line(token)
	return nil
}

// line is the content of a file without the end of line that editors add.
func line(content []byte) string { return strings.TrimRight(string(content), "\r\n") }

// maxFile is far above any file of certificates.
const maxFile = 1 << 20

// readSecret reads a file that must hold something.
func readSecret(field, name string) ([]byte, error) {
	content, err := contentOf(name)
	if err == nil && len(bytes.TrimSpace(content)) == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return content, nil
}

func contentOf(name string) ([]byte, error) {
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
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// options makes every connection of a client ask for the secrets anew. What it
// returns is for one connection; conn is told to use once there is one.
func (s *secrets) options() (options []nats.Option, use func(*nats.Conn)) {
	use = func(*nats.Conn) {}
	if t := s.from.TLS; t != nil {
		options = append(options, s.encrypted(t))
	}
	switch {
	case s.from.CredentialsFile != "":
		options = append(options, nats.UserJWT(
			func() (string, error) { return s.current().jwt, nil },
			s.sign,
		))
	case s.from.NKeyFile != "":
		d := &keyDialer{secrets: s}
		options = append(options, nats.Nkey(s.current().nkey, s.sign), nats.SetCustomDialer(d))
		use = d.use
	case s.from.UserFile != "":
		options = append(options, nats.UserInfoHandler(func() (string, string) {
			m := s.current()
			return m.user, m.password
		}))
	case s.from.TokenFile != "":
		options = append(options, nats.TokenHandler(func() string { return s.current().token }))
	}
	return options, use
}

// sign signs with the key of the user that was named last, whatever the file says
// by now.
func (s *secrets) sign(nonce []byte) ([]byte, error) {
	s.mu.Lock()
	sign := s.now.sign
	s.mu.Unlock()
	return sign(nonce)
}

func (s *secrets) encrypted(t *TLS) nats.Option {
	return func(o *nats.Options) error {
		o.Secure = true
		o.TLSConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ServerName:         t.ServerName,
			InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // who sets it was told what it means
		}
		if t.CAFile != "" {
			o.RootCAsCB = func() (*x509.CertPool, error) { return s.current().roots, nil }
		}
		if t.CertFile != "" {
			o.TLSCertCB = func() (tls.Certificate, error) { return s.current().cert, nil }
		}
		return nil
	}
}

// keyDialer opens connections for a user with an nkey. The library asks for all
// other secrets when it needs them, but takes the public key from its options: they
// are set here, where it is about to connect and holds its lock.
type keyDialer struct {
	secrets *secrets
	mu      sync.Mutex
	conn    *nats.Conn
}

func (d *keyDialer) use(conn *nats.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
}

// Dial implements nats.CustomDialer.
func (d *keyDialer) Dial(network, address string) (net.Conn, error) {
	m := d.secrets.current()
	d.mu.Lock()
	if d.conn != nil {
		d.conn.Opts.Nkey = m.nkey
	}
	d.mu.Unlock()
	return net.DialTimeout(network, address, nats.DefaultTimeout)
}

// refusal is why a server and this client cannot agree; empty for other errors,
// such as that it is not there.
func refusal(err error) string {
	if remote := (*net.OpError)(nil); errors.As(err, &remote) && remote.Op == "remote error" {
		return "alert" // the server does not like our certificate; more telling than that it hung up
	}
	for _, known := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnWanted, nats.ErrSecureConnRequired, nats.ErrTLS,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return ""
}
