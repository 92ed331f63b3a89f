package eventplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Replicas warm each other up over core NATS. A replica that starts asks on the
// offer subject; those that are complete answer; it fetches from one of them:
//
//	<prefix>.offer       request: peerMagic, id of who asks
//	                     answer:  peerMagic, entries u64, age u64 (ms), id
//	<prefix>.fetch.<id>  request: peerMagic, id of who asks
//	                     answer:  frames to the reply subject of the request
//
// A frame is its kind u8, its number u32 from 1, the XXH3 u64 of all that was sent
// up to its end, and data. Its reply subject takes the number u32 of the last frame
// that was used up, or peerStop. All numbers are little-endian.
const (
	peerMagic = "wppeer\x01"

	frameData   = 1 // a part of the state
	frameEnd    = 2 // that was all
	frameBusy   = 3 // come back later, or ask another one
	frameFailed = 4 // it broke off at the sender

	frameHead = 1 + 4 + 8

	// peerStop instead of a number: the receiver wants no more.
	peerStop = 1<<32 - 1

	// peerWindow is how many frames may be under way to a receiver.
	peerWindow = 16
	// peerFrame bounds the data in a frame, in bytes; see frameSize.
	peerFrame = 256 << 10
	// maxPeerID bounds a replica's id, in bytes.
	maxPeerID = 128
)

var (
	// errNoPeers is returned when no replica has anything to offer.
	errNoPeers = errors.New("no other replica answers that could hand over what it knows")
	// errPeerBusy is returned when a replica hands over to others already.
	errPeerBusy = errors.New("the replica is handing over to others; it can later")
	// errPeerGone is returned when the other side does not answer any more.
	errPeerGone = errors.New("the other replica does not answer any more")
	// errPeerDamaged is returned when what arrives is not what was sent.
	errPeerDamaged = errors.New("what another replica sent did not arrive as it was")
	// errPeerFailed is returned when the sender gives up.
	errPeerFailed = errors.New("the other replica could not go on")
	// errPeerUnread is returned when the receiver has not read to the end.
	errPeerUnread = errors.New("what another replica sent was not read to its end")
)

// replicaPrefix is what the subjects of the replicas of one pool begin with.
func replicaPrefix(namespace, pool string) string {
	return "warmpath." + subjectToken(namespace) + "," + subjectToken(pool)
}

// peerPrefix is what the subjects begin with on which they warm each other up.
func peerPrefix(namespace, pool string) string { return replicaPrefix(namespace, pool) + ".peers" }

// subjectToken writes any name as one token of a subject, or a part of one, as
// Dynamo does: %XX for all but letters, digits, "_" and "-" (dynamo.md 1.2).
func subjectToken(name string) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' {
			b = append(b, c)
		} else {
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

func offerSubject(prefix string) string { return prefix + ".offer" }

func fetchSubject(prefix, id string) string { return prefix + ".fetch." + subjectToken(id) }

// offer is what a replica has to hand over.
type offer struct {
	ID      string        // of the replica
	Entries uint64        // blocks that its index holds, by worker
	Age     time.Duration // since it began to listen
}

func (o offer) encode() []byte {
	b := []byte(peerMagic)
	b = binary.LittleEndian.AppendUint64(b, o.Entries)
	b = binary.LittleEndian.AppendUint64(b, uint64(max(o.Age.Milliseconds(), 0)))
	return append(b, o.ID...)
}

// parseOffer reads an offer; ok is false for what is none, or of another release.
func parseOffer(b []byte) (o offer, ok bool) {
	rest, ok := cutMagic(b)
	if !ok || len(rest) < 16 {
		return o, false
	}
	ms := binary.LittleEndian.Uint64(rest[8:])
	if ms > 1<<40 {
		return o, false
	}
	o = offer{ID: string(rest[16:]), Entries: binary.LittleEndian.Uint64(rest), Age: time.Duration(ms) * time.Millisecond}
	return o, validPeerID(o.ID)
}

// encodeAsk and parseAsk are for both kinds of request.
func encodeAsk(id string) []byte { return []byte(peerMagic + id) }

func parseAsk(b []byte) (id string, ok bool) {
	rest, ok := cutMagic(b)
	return string(rest), ok && validPeerID(string(rest))
}

func validPeerID(id string) bool { return id != "" && len(id) <= maxPeerID }

func cutMagic(b []byte) (rest []byte, ok bool) {
	if len(b) < len(peerMagic) || string(b[:len(peerMagic)]) != peerMagic {
		return nil, false
	}
	return b[len(peerMagic):], true
}

// frame is one message of a transfer.
type frame struct {
	kind byte
	n    uint32
	sum  uint64
	data []byte
}

// putFrameHead fills in the first frameHead bytes of a frame.
func putFrameHead(b []byte, kind byte, n uint32, sum uint64) {
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], n)
	binary.LittleEndian.PutUint64(b[5:], sum)
}

func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < frameHead {
		return f, false
	}
	return frame{kind: b[0], n: binary.LittleEndian.Uint32(b[1:]), sum: binary.LittleEndian.Uint64(b[5:]), data: b[frameHead:]}, true
}

// frameSize is how much data goes into a frame, well below what the server takes.
func frameSize(maxPayload int64) int { return int(max(min(peerFrame, maxPayload/4), 1<<10)) }
