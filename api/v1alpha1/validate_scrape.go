package v1alpha1

import (
	"strings"
	"time"
)

const maxMetricsPath = 256

func (m *EngineMetricsSpec) check(p *problems, path string) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~/-"
	if !strings.HasPrefix(m.Path, "/") || strings.Trim(m.Path, letters) != "" || len(m.Path) > maxMetricsPath {
		p.add(path+".path", "must begin with / and have at most %d letters, digits and ._~/-, not %.64q", maxMetricsPath, m.Path)
	}
	if m.Port < 0 || m.Port > 65535 {
		p.add(path+".port", "must be 0 to 65535, not %d", m.Port)
	}
	checkEnum(p, path+".scheme", m.Scheme, MetricsHTTP, MetricsHTTPS)
	if m.InsecureSkipVerify && m.Scheme == MetricsHTTP {
		p.add(path+".insecureSkipVerify", "needs scheme https; set it, or remove insecureSkipVerify")
	}
	checkDuration(p, path+".minInterval", m.MinInterval, 20*time.Millisecond, time.Minute)
}
