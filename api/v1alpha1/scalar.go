package v1alpha1

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as "500ms", "30s" or "1h".
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
type Duration struct {
	time.Duration
}

// MarshalJSON writes the duration as a JSON string.
func (d Duration) MarshalJSON() ([]byte, error) {
	text, err := d.MarshalText()
	return []byte(`"` + string(text) + `"`), err
}

// UnmarshalText reads a duration with a unit. A bare number other than 0 is
// refused: its unit would be a guess.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write a number with a unit, such as 500ms, 30s or 1h", text)
	}
	d.Duration = v
	return nil
}

// MarshalText writes the duration as people do: 1h, not 1h0m0s.
func (d Duration) MarshalText() ([]byte, error) {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return []byte(text), nil
}

// WorkerID is a Dynamo worker id, all 64 bits. It is written as a decimal string
// and read from a string or a number.
type WorkerID uint64

// UnmarshalText reads a decimal number from 0 to 2^64-1.
func (id *WorkerID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is larger than 2^64-1", text)
	}
	if err != nil {
		return fmt.Errorf("%q is not a worker id; write it in decimal digits", text)
	}
	*id = WorkerID(v)
	return nil
}

// UnmarshalJSON reads a JSON string or number.
func (id *WorkerID) UnmarshalJSON(b []byte) error {
	if n := len(b); n >= 2 && b[0] == '"' && b[n-1] == '"' {
		b = b[1 : n-1]
	}
	return id.UnmarshalText(b)
}

// MarshalText writes the id in decimal.
func (id WorkerID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 10), nil }
