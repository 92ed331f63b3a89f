package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// CaseRow is one case of a benchmark of the index or of the event plane. What a
// case does not measure is left out. The fields after Cores belong to few cases.
type CaseRow struct {
	Name          string  `json:"name"`
	Workers       int     `json:"workers"`
	Holders       int     `json:"holders"` // of each block
	Entries       int     `json:"entries"` // (worker, block) in the index
	BlocksPerS    float64 `json:"blocks_per_s,omitempty"`
	P50US         float64 `json:"p50_us,omitempty"`
	P99US         float64 `json:"p99_us,omitempty"`
	BytesPerEntry float64 `json:"bytes_per_entry,omitempty"`
	Cores         int     `json:"cores"`

	CPUUSPerBlock  float64 `json:"cpu_us_per_block,omitempty"` // of the whole process; holds on a busy machine too
	BlocksPerSCore float64 `json:"blocks_per_s_core,omitempty"`
	MaxUS          float64 `json:"max_us,omitempty"`
	Lookups        float64 `json:"lookups,omitempty"`         // answered in the time of the case
	BaselineP99US  float64 `json:"baseline_p99_us,omitempty"` // of a process without an index
	BaselineMaxUS  float64 `json:"baseline_max_us,omitempty"`

	// Of the event plane. Dropped are messages, Missed events that id gaps told of.
	MessagesPerS  float64 `json:"messages_per_s,omitempty"`
	Dropped       float64 `json:"dropped,omitempty"`
	Missed        float64 `json:"missed,omitempty"`
	CPUPlane      float64 `json:"cpu_plane,omitempty"` // cores in use: the process with plane and index
	CPUServer     float64 `json:"cpu_server,omitempty"`
	CPUPublishers float64 `json:"cpu_publishers,omitempty"`
}

// figures are the fields that vary from round to round.
func (r *CaseRow) figures() []*float64 {
	return []*float64{
		&r.BlocksPerS, &r.P50US, &r.P99US, &r.BytesPerEntry, &r.CPUUSPerBlock, &r.BlocksPerSCore, &r.MaxUS, &r.Lookups, &r.BaselineP99US, &r.BaselineMaxUS,
		&r.MessagesPerS, &r.Dropped, &r.Missed, &r.CPUPlane, &r.CPUServer, &r.CPUPublishers,
	}
}

// speed notes how fast blocks were taken in.
func (r *CaseRow) speed(blocks int, took, cpu time.Duration) {
	r.BlocksPerS = float64(blocks) / took.Seconds()
	r.CPUUSPerBlock = us(cpu) / float64(blocks)
}

// medians takes the median of each figure over rounds of the same cases.
func medians(rounds [][]CaseRow) []CaseRow {
	out := slices.Clone(rounds[0])
	for i := range out {
		for f, figure := range out[i].figures() {
			var values []float64
			for _, r := range rounds {
				values = append(values, *r[i].figures()[f])
			}
			slices.Sort(values)
			*figure = values[len(values)/2]
		}
	}
	return out
}

// Output is a form of the result.
type Output string

// Forms of the result.
const (
	Table    Output = "table"
	JSON     Output = "json"
	Markdown Output = "markdown"
)

// ParseOutput reads the value of a flag.
func ParseOutput(s string) (Output, error) {
	switch o := Output(s); o {
	case Table, JSON, Markdown:
		return o, nil
	}
	return "", fmt.Errorf("--output %q is not table, json or markdown", s)
}

// column of a table of rows R: a title and its text in a row.
type column[R any] struct {
	title string
	text  func(*R) string
	left  bool // words, not figures
}

// number is a column of figures; "-" where a case does not measure it.
func number[R any](title string, unit float64, digits int, value func(*R) float64) column[R] {
	return column[R]{title: title, text: func(r *R) string {
		v := value(r)
		if v == 0 {
			return "-"
		}
		return strconv.FormatFloat(v/unit, 'f', digits, 64)
	}}
}

// commonColumns stand in every table.
var commonColumns = []column[CaseRow]{
	{title: "case", left: true, text: func(r *CaseRow) string { return r.Name }},
	{title: "workers", text: func(r *CaseRow) string { return strconv.Itoa(r.Workers) }},
	{title: "holders", text: func(r *CaseRow) string { return strconv.Itoa(r.Holders) }},
	{title: "entries", text: func(r *CaseRow) string { return strconv.Itoa(r.Entries) }},
	number("M blocks/s", 1e6, 2, func(r *CaseRow) float64 { return r.BlocksPerS }),
	number("p50 us", 1, 1, func(r *CaseRow) float64 { return r.P50US }),
	number("p99 us", 1, 1, func(r *CaseRow) float64 { return r.P99US }),
	number("CPU us/block", 1, 2, func(r *CaseRow) float64 { return r.CPUUSPerBlock }),
}

var indexColumns = append(slices.Clone(commonColumns),
	number("bytes/entry", 1, 0, func(r *CaseRow) float64 { return r.BytesPerEntry }),
	column[CaseRow]{title: "more", text: more},
	column[CaseRow]{title: "bar", text: bar})

var eventColumns = append(slices.Clone(commonColumns),
	number("messages/s", 1, 0, func(r *CaseRow) float64 { return r.MessagesPerS }),
	number("messages dropped", 1, 0, func(r *CaseRow) float64 { return r.Dropped }),
	number("events missed", 1, 0, func(r *CaseRow) float64 { return r.Missed }),
	number("CPU plane", 1, 2, func(r *CaseRow) float64 { return r.CPUPlane }),
	number("CPU NATS", 1, 2, func(r *CaseRow) float64 { return r.CPUServer }),
	number("CPU publishers", 1, 2, func(r *CaseRow) float64 { return r.CPUPublishers }))

// more is the figures that few cases have.
func more(r *CaseRow) string {
	var list []string
	add := func(v float64, format string) {
		if v != 0 {
			list = append(list, fmt.Sprintf(format, v))
		}
	}
	add(r.MaxUS, "longest %.0f us")
	add(r.BaselineP99US, "without an index: p99 %.0f us")
	add(r.BaselineMaxUS, "longest %.0f us")
	add(r.Lookups, "%.0f lookups")
	add(r.BlocksPerSCore/1e6, "%.2f M blocks/s per core")
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// writeRows writes the result in one of its forms.
func writeRows[R any](w io.Writer, form Output, columns []column[R], rows []R) error {
	switch form {
	case JSON:
		return json.NewEncoder(w).Encode(map[string]any{"rows": rows})
	case Markdown:
		return writeMarkdown(w, columns, rows)
	case Table:
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(text func(column[R]) string) {
		for _, c := range columns {
			fmt.Fprint(t, text(c), "\t")
		}
		fmt.Fprintln(t)
	}
	line(func(c column[R]) string { return c.title })
	for i := range rows {
		line(func(c column[R]) string { return c.text(&rows[i]) })
	}
	return t.Flush()
}

func writeMarkdown[R any](w io.Writer, columns []column[R], rows []R) error {
	var b strings.Builder
	line := func(text func(column[R]) string) {
		for _, c := range columns {
			b.WriteString("| " + text(c) + " ")
		}
		b.WriteString("|\n")
	}
	line(func(c column[R]) string { return c.title })
	line(func(c column[R]) string {
		if c.left {
			return "---"
		}
		return "---:"
	})
	for i := range rows {
		line(func(c column[R]) string { return c.text(&rows[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}
