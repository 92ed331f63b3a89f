package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/warmpath/warmpath/internal/cachedir"
)

// natsModule is the module of nats-server, and its main package.
const natsModule = "github.com/nats-io/nats-server/v2"

// installNATS returns the path of a nats-server of the version in go.mod. It is
// built once and kept in the cache folder; of several processes that call it at
// once, one builds and the others wait.
func installNATS(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", natsModule).Output()
	if err != nil {
		return "", fmt.Errorf("which nats-server does go.mod name: %w", err)
	}
	cache, err := filepath.Abs(cachedir.Path())
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	binary := filepath.Join(cache, "nats-server-"+strings.TrimSpace(string(out)))
	lock, err := os.OpenFile(binary+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // closing releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	// A file with the final name is always complete.
	partial := binary + ".partial"
	build := exec.CommandContext(ctx, "go", "build", "-o", partial, natsModule)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return binary, os.Rename(partial, binary)
}
