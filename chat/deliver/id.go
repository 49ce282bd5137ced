package deliver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ID names a chat, a thread, a message or a user of a service; "" names none. In files, an ID that is a decimal
// number is a JSON number: so the first version of Telegram's records wrote it.
type ID string

// NumberID returns the ID of a number; 0 names none.
func NumberID(n int64) ID {
	if n == 0 {
		return ""
	}
	return ID(strconv.FormatInt(n, 10))
}

// Number returns the number of an ID, 0 if it is none.
func (id ID) Number() int64 {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil || NumberID(n) != id {
		return 0
	}
	return n
}

// MarshalJSON implements json.Marshaler.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.Number() != 0 {
		return []byte(id), nil
	}
	return json.Marshal(string(id))
}

// UnmarshalJSON implements json.Unmarshaler.
func (id *ID) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		return json.Unmarshal(b, (*string)(id))
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("read ID %s: %w", b, err)
	}
	*id = NumberID(n)
	return nil
}

// inName is the ID as a part of a state's name.
func (id ID) inName() string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	switch {
	case id == "":
		return "0"
	case strings.Trim(string(id), safe) == "" && len(id) <= 64:
		return string(id)
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
