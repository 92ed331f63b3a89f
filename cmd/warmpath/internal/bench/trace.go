package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// readTrace reads a trace in Mooncake's form: a JSON object per line, whose
// hash_ids are the prompt's blocks of 512 tokens. Equal ids are equal prefixes.
func readTrace(path string) ([][]uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the trace: %w", err)
	}
	defer file.Close()
	var prompts [][]uint64
	lines := json.NewDecoder(bufio.NewReader(file))
	for {
		var request struct {
			HashIDs []uint64 `json:"hash_ids"`
		}
		switch err := lines.Decode(&request); {
		case errors.Is(err, io.EOF) && len(prompts) > 0:
			return prompts, nil
		case err != nil:
			return nil, fmt.Errorf("the trace %s, request %d: %w", path, len(prompts)+1, err)
		case len(request.HashIDs) == 0:
			return nil, fmt.Errorf("the trace %s, request %d: no hash_ids", path, len(prompts)+1)
		}
		prompts = append(prompts, request.HashIDs)
	}
}
