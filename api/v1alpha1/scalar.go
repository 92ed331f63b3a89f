package v1alpha1

import (
	"errors"
	"fmt"
	"math"
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

// maxRate is far above any network: one petabyte per second.
const maxRate = 1_000_000_000_000_000

// ByteRate is a number of bytes per second. It is written with a unit of 1000 (k, M,
// G, T) or of 1024 (Ki, Mi, Gi, Ti), as in 50G.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$`
// +kubebuilder:validation:XValidation:rule="self.matches('[1-9]')",message="must be above 0"
type ByteRate struct {
	BytesPerSecond float64
}

// rateUnits are in the order in which they are looked for: longer ones first.
var rateUnits = []struct {
	name  string
	bytes float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
}

// UnmarshalText reads a number with or without a unit.
func (r *ByteRate) UnmarshalText(text []byte) error {
	number, scale := string(text), 1.0
	for _, u := range rateUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, scale = rest, u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.Trim(number, "0123456789.") != "" || number[0] == '.' || number[len(number)-1] == '.' {
		return fmt.Errorf("%q is not a number of bytes per second; write a number with a unit k, M, G, T, Ki, Mi, Gi or Ti, such as 50G", text)
	}
	r.BytesPerSecond = v * scale
	return nil
}

// MarshalText writes the rate with the largest unit of 1000 that keeps it whole,
// else in bytes.
func (r ByteRate) MarshalText() ([]byte, error) {
	for i := len(rateUnits) - 1; i >= 0; i-- {
		u := rateUnits[i]
		if n := r.BytesPerSecond / u.bytes; n >= 1 && n == math.Trunc(n) {
			return append(strconv.AppendFloat(nil, n, 'f', -1, 64), u.name...), nil
		}
	}
	return strconv.AppendFloat(nil, r.BytesPerSecond, 'f', -1, 64), nil
}

// MarshalJSON writes the rate as a JSON string.
func (r ByteRate) MarshalJSON() ([]byte, error) {
	text, err := r.MarshalText()
	return []byte(`"` + string(text) + `"`), err
}
