package eventplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// generation is one state of a server and the files of the clients that it takes.
type generation struct {
	config string            // of the server
	files  map[string]string // of the client, by name
	hidden []string          // what nobody may see in a log
}

// way is one way to be secure.
type way struct {
	name     string
	security func(dir string) Security
	make     func(t *testing.T) generation
	restart  bool     // the server takes a new configuration only when it starts
	breakIt  []string // files to break
	refusal  string   // what the log says when client and server are of different generations
}

func quoted(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	writeFile(t, name, content)
	return fmt.Sprintf("%q", name)
}

func ways() []way {
	count := 0
	secret := func() string {
		count++
		return fmt.Sprintf("s3cret-%d", count)
	}
	tlsConfig := func(t *testing.T, a *authority, names ...string) string {
		cert, key := a.sign(t, time.Now().Add(time.Hour), names...)
		return fmt.Sprintf("cert_file: %s, key_file: %s", quoted(t, cert), quoted(t, key))
	}
	return []way{
		{
			name:     "user",
			security: func(dir string) Security { return Security{UserFile: dir + "/user", PasswordFile: dir + "/password"} },
			make: func(*testing.T) generation {
				password := secret()
				return generation{
					fmt.Sprintf("authorization: {user: picker, password: %q}", password),
					map[string]string{"user": "picker\n", "password": password + "\n"},
					[]string{password},
				}
			},
			breakIt: []string{"user", "password"}, refusal: "uthorization",
		},
		{
			name:     "token",
			security: func(dir string) Security { return Security{TokenFile: dir + "/token"} },
			make: func(*testing.T) generation {
				token := secret()
				return generation{fmt.Sprintf("authorization: {token: %q}", token), map[string]string{"token": token + "\r\n"}, []string{token}}
			},
			breakIt: []string{"token"}, refusal: "uthorization",
		},
		{
			name:     "nkey",
			security: func(dir string) Security { return Security{NKeyFile: dir + "/nkey"} },
			make: func(t *testing.T) generation {
				k := newNKey(t, ofUser)
				return generation{fmt.Sprintf("authorization: {users: [{nkey: %s}]}", k.public), map[string]string{"nkey": k.seed + "\n"}, []string{k.seed}}
			},
			breakIt: []string{"nkey"}, refusal: "uthorization",
		},
		{
			name:     "credentials",
			security: func(dir string) Security { return Security{CredentialsFile: dir + "/creds"} },
			make: func(t *testing.T) generation {
				config, credentials, user := newOperator(t)
				return generation{config, map[string]string{"creds": credentials}, []string{user.seed, strings.Split(credentials, "\n")[1]}}
			},
			restart: true, breakIt: []string{"creds"}, refusal: "uthorization",
		},
		{
			name:     "tls",
			security: func(dir string) Security { return Security{TLS: &TLS{CAFile: dir + "/ca"}} },
			make: func(t *testing.T) generation {
				a := newAuthority(t)
				return generation{fmt.Sprintf("tls: {%s}", tlsConfig(t, a)), map[string]string{"ca": a.pem}, nil}
			},
			restart: true, breakIt: []string{"ca"}, refusal: "unknown authority",
		},
		{
			name: "mutual tls, server name and token",
			security: func(dir string) Security {
				return Security{TLS: &TLS{CAFile: dir + "/ca", CertFile: dir + "/cert", KeyFile: dir + "/key", ServerName: "nats.test"}, TokenFile: dir + "/token"}
			},
			make: func(t *testing.T) generation {
				a, token := newAuthority(t), secret()
				cert, key := a.sign(t, time.Now().Add(time.Hour))
				return generation{
					fmt.Sprintf("tls: {%s, ca_file: %s, verify: true}\nauthorization: {token: %q}", tlsConfig(t, a, "nats.test"), quoted(t, a.pem), token),
					map[string]string{"ca": a.pem, "cert": cert, "key": key, "token": token},
					[]string{token, strings.Split(key, "\n")[1]},
				}
			},
			restart: true, breakIt: []string{"ca", "cert", "key", "token"}, refusal: "unknown authority",
		},
		{
			name: "client certificate",
			security: func(dir string) Security {
				return Security{TLS: &TLS{CertFile: dir + "/cert", KeyFile: dir + "/key", InsecureSkipVerify: true}}
			},
			make: func(t *testing.T) generation {
				a := newAuthority(t)
				cert, key := a.sign(t, time.Now().Add(time.Hour))
				return generation{
					fmt.Sprintf("tls: {%s, ca_file: %s, verify: true}", tlsConfig(t, a, "anything"), quoted(t, a.pem)),
					map[string]string{"cert": cert, "key": key},
					[]string{strings.Split(key, "\n")[1]},
				}
			},
			restart: true, breakIt: []string{"cert", "key"}, refusal: "tls",
		},
	}
}

func (g *generation) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range g.files {
		writeFile(t, filepath.Join(dir, name), content)
	}
}

// change gives a server a new configuration in the way that it takes it.
func (w *way) change(s *secureServer, config string) {
	s.t.Helper()
	if w.restart {
		s.restart(config)
	} else {
		s.reload(config)
	}
}

// flows sends events with new secrets, and waits until the plane has them.
func flows(t *testing.T, r *rig, s *secureServer, security Security, worker uint64) {
	t.Helper()
	conn := s.publisher(security)
	r.listening(conn)
	k := fleet.Key{ID: worker}
	publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(k, 1, 1, 2)))
	r.barrier(conn)
	r.wantHeld(k, 2)
}

func noSecrets(t *testing.T, r *rig, generations ...generation) {
	t.Helper()
	for _, g := range generations {
		for _, hidden := range g.hidden {
			if r.logs.count(hidden) != 0 {
				t.Error("the log shows a secret")
			}
		}
	}
}

func eachWay(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

const disagrees = "no agreement with the event plane"

// TestServerChangesFirst: the server gets new secrets, the plane is refused and
// says so, and comes back by itself once its files are replaced.
func TestServerChangesFirst(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		first, second, dir := w.make(t), w.make(t), t.TempDir()
		first.write(t, dir)
		security := w.security(dir)
		s := startSecure(t, freePort(t), first.config)
		r := newSecureRig(t, s.address(), security)
		stop := r.run()
		flows(t, r, s, security, 1)

		w.change(s, second.config)
		waitFor(t, "no word that the plane is refused", func() bool { return r.logs.count("level=WARN", disagrees, w.refusal) > 0 })
		if r.plane.Connected() {
			t.Error("connected with secrets that the server does not know any more")
		}
		second.write(t, dir)
		flows(t, r, s, security, 2)
		stop()
		if r.logs.count("level=INFO", "secrets of the event plane changed") == 0 || r.logs.count("level=INFO", "connected to the event plane again") == 0 {
			t.Error("not told that the secrets changed and helped")
		}
		if n := r.logs.count(disagrees); n > 8 { // once per reason and change of the files
			t.Errorf("%d lines about the refusal", n)
		}
		noSecrets(t, r, first, second)
	})
}

// TestFilesChangeFirst: new files break nothing while a connection stands, and are
// there when the server wants them.
func TestFilesChangeFirst(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		first, second, dir := w.make(t), w.make(t), t.TempDir()
		first.write(t, dir)
		security := w.security(dir)
		s := startSecure(t, freePort(t), first.config)
		r := newSecureRig(t, s.address(), security)
		stop := r.run()
		conn := s.publisher(security)
		r.listening(conn)

		second.write(t, dir)
		want := r.plane.secrets
		waitFor(t, "the plane does not look at its files", func() bool {
			want.mu.Lock()
			defer want.mu.Unlock()
			return want.changes > 0 && want.problem == ""
		})
		k := fleet.Key{ID: 1}
		publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(k, 1, 1, 2)))
		r.barrier(conn)
		r.wantHeld(k, 2)
		if st := r.plane.Stats(); st.Disconnects != 0 || !st.Connected {
			t.Errorf("new files cost a connection: %+v", st)
		}

		w.change(s, second.config)
		flows(t, r, s, security, 2)
		stop()
		noSecrets(t, r, first, second)
	})
}

// TestBrokenFiles: a file that gets broken is named in the log; the connection
// stays, and so does what can be connected with.
func TestBrokenFiles(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		good, dir := w.make(t), t.TempDir()
		good.write(t, dir)
		security := w.security(dir)
		s := startSecure(t, freePort(t), good.config)
		r := newSecureRig(t, s.address(), security)
		stop := r.run()
		conn := s.publisher(security)
		r.listening(conn)
		for i, name := range w.breakIt {
			writeFile(t, filepath.Join(dir, name), "\n")
			waitFor(t, "no word about the broken file "+name, func() bool {
				return r.logs.count("level=WARN", "cannot be used", "File: "+filepath.Join(dir, name)) > 0
			})
			if st := r.plane.Stats(); st.Disconnects != uint64(i) || !st.Connected {
				t.Errorf("a broken file cost a connection: %+v", st)
			}
			s.restart(good.config)
			waitFor(t, "the plane cannot connect with what it knew", func() bool { return r.plane.Stats().Disconnects == uint64(i)+1 && r.plane.Connected() })

			good.write(t, dir)
			waitFor(t, "not told that the file is good again", func() bool { return r.logs.count("level=INFO", "can be used again") == i+1 })
		}
		flows(t, r, s, security, 1)
		stop()
		if r.logs.count(disagrees) != 0 {
			t.Error("refused, with the secrets that the server knows")
		}
		noSecrets(t, r, good)
	})
}

// TestWrongSecrets: from the start, and until they are right.
func TestWrongSecrets(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		wrong, right, dir := w.make(t), w.make(t), t.TempDir()
		wrong.write(t, dir)
		security := w.security(dir)
		s := startSecure(t, freePort(t), right.config)
		r := newSecureRig(t, s.address(), security)
		stop := r.run()
		waitFor(t, "no word about the refusal", func() bool {
			return r.logs.count("level=WARN", disagrees, w.refusal, s.address()) > 0 && r.logs.count("level=WARN", "not reachable yet") == 1
		})
		if st := r.plane.Stats(); st.Connected || st.EverListened {
			t.Errorf("connected with the wrong secrets: %+v", st)
		}
		right.write(t, dir)
		flows(t, r, s, security, 1)
		stop()
		noSecrets(t, r, wrong, right)
	})
}

// TestNoSecrets: a plane without any against servers that want some, and the
// other way round.
func TestNoSecrets(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			g := w.make(t)
			s := startSecure(t, freePort(t), g.config)
			r := newSecureRig(t, s.address(), Security{})
			r.run()
			waitFor(t, "no word about the refusal", func() bool { return r.logs.count("level=WARN", disagrees) > 0 })
		})
	}
	address, _ := startNATS(t, anyPort)
	r := newSecureRig(t, address, Security{TLS: &TLS{}})
	r.run()
	waitFor(t, "no word that the server has no TLS", func() bool { return r.logs.count("level=WARN", disagrees, "secure connection not available") > 0 })
}

// TestExpiredCertificates: of the server, until it has a new one; of the client,
// until its file does.
func TestExpiredCertificates(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	writeFile(t, dir+"/ca", a.pem)
	config := func(until time.Time) string {
		cert, key := a.sign(t, until)
		return fmt.Sprintf("tls: {cert_file: %s, key_file: %s, ca_file: %s, verify: true}", quoted(t, cert), quoted(t, key), quoted(t, a.pem))
	}
	client := func(until time.Time) {
		cert, key := a.sign(t, until)
		writeFile(t, dir+"/cert", cert)
		writeFile(t, dir+"/key", key)
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	security := Security{TLS: &TLS{CAFile: dir + "/ca", CertFile: dir + "/cert", KeyFile: dir + "/key"}}
	client(past)
	s := startSecure(t, freePort(t), config(past))
	r := newSecureRig(t, s.address(), security)
	r.run()
	waitFor(t, "no word about the server's certificate", func() bool { return r.logs.count("level=WARN", disagrees, "expired") > 0 })
	s.restart(config(future))
	client(past) // changed: told anew
	waitFor(t, "no word about the client's certificate", func() bool {
		// A server that hangs up may be seen before its reason is read.
		return r.logs.count("level=WARN", disagrees, "remote error")+r.logs.count("level=WARN", disagrees, "after TLS handshake") > 0
	})
	client(future)
	flows(t, r, s, security, 1)
}

// TestServerName: a certificate for another name is refused.
func TestServerName(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	writeFile(t, dir+"/ca", a.pem)
	cert, key := a.sign(t, time.Now().Add(time.Hour))
	s := startSecure(t, freePort(t), fmt.Sprintf("tls: {cert_file: %s, key_file: %s}", quoted(t, cert), quoted(t, key)))
	r := newSecureRig(t, s.address(), Security{TLS: &TLS{CAFile: dir + "/ca", ServerName: "nats.test"}})
	r.run()
	waitFor(t, "no word about the name", func() bool { return r.logs.count("level=WARN", disagrees, "nats.test") > 0 })
}

// TestFailover: of several servers, with secrets, any will do.
func TestFailover(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/token", "s3cret")
	security := Security{TokenFile: dir + "/token"}
	const config = "authorization: {token: s3cret}"
	down := freePort(t)
	first := startSecure(t, freePort(t), config)
	r := newSecureRig(t, fmt.Sprintf("nats://127.0.0.1:%d, %s", down, first.address()), security)
	stop := r.run()
	flows(t, r, first, security, 1)
	second := startSecure(t, down, config)
	first.stop()
	flows(t, r, second, security, 2)
	stop()
	if r.plane.Stats().Disconnects != 1 || r.logs.count("s3cret") != 0 {
		t.Errorf("%+v\n%s", r.plane.Stats(), r.logs.text.String())
	}
}

// TestNewRefusesFiles: what is missing or broken is named before anything starts.
func TestNewRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	cert, key := a.sign(t, time.Now().Add(time.Hour))
	_, otherKey := a.sign(t, time.Now().Add(time.Hour))
	_, credentials, user := newOperator(t)
	account := newNKey(t, ofAccount)
	for name, content := range map[string]string{
		"cert": cert, "key": key, "other-key": otherKey, "junk": "s3cret", "empty": "\n\n", "huge": strings.Repeat("x", maxFile+1),
		"account": account.seed, "flipped": strings.Replace(user.seed, user.seed[10:14], "AAAA", 1),
		"no-seed": strings.Replace(credentials, user.seed, "s3cret", 1), "seed-only": user.seed,
	} {
		writeFile(t, filepath.Join(dir, name), content)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		security Security
		words    string
	}{
		{Security{TLS: &TLS{CAFile: at("absent")}}, "tls.caFile: absent"},
		{Security{TLS: &TLS{CAFile: at("junk")}}, "tls.caFile: junk"},
		{Security{TLS: &TLS{CAFile: dir}}, "tls.caFile: no file"},
		{Security{TLS: &TLS{CertFile: at("absent"), KeyFile: at("key")}}, "tls.certFile: absent"},
		{Security{TLS: &TLS{CertFile: at("cert"), KeyFile: at("absent")}}, "tls.keyFile: absent"},
		{Security{TLS: &TLS{CertFile: at("cert"), KeyFile: at("other-key")}}, "tls.certFile: other-key"},
		{Security{TLS: &TLS{CertFile: at("cert")}}, "tls.keyFile go together"},
		{Security{TLS: &TLS{CAFile: at("cert"), InsecureSkipVerify: true}}, "tls.insecureSkipVerify"},
		{Security{CredentialsFile: at("absent")}, "credentialsFile: absent"},
		{Security{CredentialsFile: at("junk")}, "credentialsFile: junk"},
		{Security{CredentialsFile: at("no-seed")}, "credentialsFile: no-seed"},
		{Security{CredentialsFile: at("seed-only")}, "credentialsFile: seed-only"},
		{Security{NKeyFile: at("absent")}, "nkeyFile: absent"},
		{Security{NKeyFile: at("junk")}, "nkeyFile: junk"},
		{Security{NKeyFile: at("account")}, "nkeyFile: account"},
		{Security{NKeyFile: at("flipped")}, "nkeyFile: flipped"},
		{Security{UserFile: at("absent"), PasswordFile: at("junk")}, "userFile: absent"},
		{Security{UserFile: at("junk"), PasswordFile: at("empty")}, "passwordFile: empty"},
		{Security{UserFile: at("junk")}, "userFile and passwordFile go together"},
		{Security{TokenFile: at("huge")}, "tokenFile: huge larger"},
		{Security{TokenFile: at("junk"), NKeyFile: at("junk")}, "more than one"},
		{Security{TLS: &TLS{CAFile: at("absent")}, TokenFile: at("empty")}, "tls.caFile: tokenFile:"},
	} {
		r := newRig(t, "", "dynamo")
		cfg := r.plane.cfg
		cfg.Security = c.security
		_, err := New(cfg)
		if err == nil {
			t.Errorf("%+v: no error, want %q", c.security, c.words)
			continue
		}
		text := err.Error()
		for word := range strings.FieldsSeq(c.words) {
			if !strings.Contains(text, word) {
				t.Errorf("%v, want %q", err, word)
			}
		}
		if strings.Contains(text, "s3cret") || strings.Contains(text, user.seed) || strings.Contains(text, account.seed) {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// TestFilesComeLater: a plane that may wait for its files connects once they are
// there, and says before what it waits for. It never connects without.
func TestFilesComeLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	bus := startSecure(t, freePort(t), `authorization: {token: "s3cret"}`)
	r := newRig(t, bus.address(), "dynamo")
	cfg := r.plane.cfg
	cfg.Security, cfg.AwaitFiles = Security{TokenFile: file}, true
	plane, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plane.reconnectWait = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- plane.Run(ctx) }()
	waitFor(t, "a reason", func() bool { return plane.LastError() != nil })
	if err := plane.LastError(); !strings.Contains(err.Error(), file) {
		t.Errorf("waits for %v, want the file", err)
	}
	if n := bus.server.NumClients(); n != 0 || plane.Connected() {
		t.Errorf("%d connections before there is a secret", n)
	}
	writeFile(t, file, "s3cret")
	waitFor(t, "the connection", plane.Connected)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r.logs.count("s3cret") != 0 {
		t.Error("the secret is in the log")
	}
}

// A plane that ends before its files come ends well.
func TestFilesNeverCome(t *testing.T) {
	r := newRig(t, "", "dynamo")
	cfg := r.plane.cfg
	cfg.URL, cfg.Security, cfg.AwaitFiles = "nats://127.0.0.1:1", Security{TokenFile: filepath.Join(t.TempDir(), "token")}, true
	plane, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plane.Run(ctx); err != nil {
		t.Error(err)
	}
	if plane.Stats().Connected || plane.Warming() == "" && cfg.WarmUp.Timeout > 0 {
		t.Errorf("%+v", plane.Stats())
	}
}
