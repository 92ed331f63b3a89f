package gateway

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	picker := netip.MustParseAddrPort("127.0.0.1:9002")
	for _, tc := range []struct {
		name string
		cfg  Config
		want []string // parts of the error; none for no error
	}{
		{"defaults", Config{Picker: picker}, nil},
		{"override host", Config{Picker: picker, Follow: OverrideHost, Workers: []netip.AddrPort{picker}}, nil},
		{"no picker", Config{}, []string{"picker: an address"}},
		{"picker without a port", Config{Picker: netip.AddrPortFrom(picker.Addr(), 0)}, []string{"picker: an address"}},
		{
			"modes",
			Config{Picker: picker, RequestBodyMode: 3, ResponseBodyMode: 9, Follow: 3},
			[]string{"request body mode: unknown value 3", "response body mode: unknown value 9", "follow mode: unknown value 3"},
		},
		{"override host without workers", Config{Picker: picker, Follow: OverrideHost}, []string{"needs at least one"}},
		{"override host with a bad worker", Config{Picker: picker, Follow: OverrideHost, Workers: []netip.AddrPort{{}}}, []string{"every worker needs"}},
		{"workers without use", Config{Picker: picker, Workers: []netip.AddrPort{picker}}, []string{"only used by follow mode OverrideHost"}},
		{"negative timeout", Config{Picker: picker, StreamIdleTimeout: -time.Second}, []string{"-1s is negative"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.cfg.Validate()
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
