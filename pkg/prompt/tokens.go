package prompt

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// tokenList reads a list of token ids at its opening bracket and appends them
// to dst. When it meets anything else it stops there, with ok false: the caller
// then finds out whether that is broken JSON or only a wrong type. Nothing here
// has to tell the two apart, which is what keeps the loop short.
func tokenList(s *jsonscan.Scanner, dst []uint32) (_ []uint32, ok bool) {
	s.Pos++
	if s.Peek() == ']' {
		s.Pos++
		return dst, true
	}
	data, i := s.Data, s.Pos
	for {
		id, end := tokenID(data, i)
		if end == i {
			s.Pos = i
			return dst, false
		}
		dst = append(dst, id)
		// Nearly every list is written "1,2" or "1, 2".
		if end+2 < len(data) && data[end] == ',' {
			i = end + 1
			if data[i] == ' ' {
				i++
			}
			if jsonscan.IsDigit(data[i]) {
				continue
			}
		}
		s.Pos = end
		if more, err := s.Next(']'); err != nil || !more {
			return dst, err == nil
		}
		s.Peek()
		i = s.Pos
	}
}

// tokenID reads a token id at i. It returns i again when there is none: no
// digits, a leading zero, more than 32 bits. What follows the digits is the
// caller's to check.
//
// Up to seven digits are read as one word: the digits are moved to the top of
// it, zeros fill the bottom, and three multiplications add up pairs, then
// quadruples, then all eight.
func tokenID(data []byte, i int) (id uint32, end int) {
	if i+8 > len(data) {
		return tokenIDSlow(data, i)
	}
	x := binary.LittleEndian.Uint64(data[i:]) ^ ('0' * ones)
	other := ((x&^highs + 0x76*ones) | x) & highs
	n := bits.TrailingZeros64(other) >> 3
	if n == 0 || n == 8 || (n > 1 && data[i] == '0') {
		return tokenIDSlow(data, i)
	}
	x <<= 64 - 8*uint(n)
	x = (x*10 + x>>8) & 0x00ff00ff00ff00ff
	x = (x*100 + x>>16) & 0x0000ffff0000ffff
	return uint32(x*10000 + x>>32), i + n
}

func tokenIDSlow(data []byte, i int) (id uint32, end int) {
	var v uint64
	end = i
	for end < len(data) && jsonscan.IsDigit(data[end]) {
		v = v*10 + uint64(data[end]-'0')
		end++
		if v > math.MaxUint32 {
			return 0, i
		}
	}
	if end > i+1 && data[i] == '0' {
		return 0, i
	}
	return uint32(v), end
}
