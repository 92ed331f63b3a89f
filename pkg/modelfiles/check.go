package modelfiles

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the hash that git names content by
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// lfsPointer is how a file begins that git-lfs put in place of the real one.
const lfsPointer = "version https://git-lfs"

// checkContent refuses what cannot be the file that its name says: nothing, a
// pointer of git-lfs, a page of a proxy. It does not read JSON.
func checkContent(name string, data []byte) error {
	switch {
	case bytes.HasPrefix(data, []byte(lfsPointer)):
		return &Error{
			Code: BadContent, Msg: "is a pointer of git-lfs, not the file itself",
			Fix: `run "git lfs pull" where the repository was cloned`,
		}
	case strings.HasSuffix(name, ".jinja"):
		return nil // may well be empty
	case len(data) == 0:
		return &Error{Code: BadContent, Msg: "is empty", Fix: "fetch it anew"}
	case strings.HasSuffix(name, ".json") && !beginsObject(data):
		return &Error{Code: BadContent, Msg: "is not a JSON object", Fix: "look at the file: is it a page of a proxy?"}
	default:
		return nil
	}
}

// beginsObject reports whether a JSON object may begin here. A mark of byte order
// is refused, as Hugging Face does.
func beginsObject(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '{'
}

// checksum is what a hub says of a file: 40 hex digits (SHA-1) or 64 (SHA-256).
// Empty: it says nothing of the kind.
type checksum string

// checksumOf reads an ETag. Hubs give the hash there that git or git-lfs know the
// file by. Other ETags say nothing about the content.
func checksumOf(etag string) checksum {
	tag := strings.ToLower(strings.Trim(strings.TrimPrefix(strings.TrimSpace(etag), "W/"), `"`))
	if (len(tag) == 2*sha1.Size || len(tag) == 2*sha256.Size) && isHex(tag) {
		return checksum(tag)
	}
	return ""
}

// check compares. A SHA-1 may be git's, over a header and the content, or, from
// other servers than Hugging Face's, over the content alone.
func (c checksum) check(data []byte) error {
	want := string(c)
	var got string
	switch len(c) {
	case 0:
		return nil
	case 2 * sha256.Size:
		got = sha256Hex(data)
	default:
		if plain := sha1.Sum(data); hex.EncodeToString(plain[:]) == want { //nolint:gosec // see the import
			return nil
		}
		got = gitHash(data)
	}
	if got == want {
		return nil
	}
	return &Error{
		Code: BadChecksum, Msg: fmt.Sprintf("has checksum %s, the hub says %s", got, want),
		Fix: "something on the way changes files, such as a proxy: fetch from the hub itself",
	}
}

// gitHash is the name that git gives to content.
func gitHash(data []byte) string {
	h := sha1.New() //nolint:gosec // see the import
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
