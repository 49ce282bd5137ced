package deliver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// load reads a state into v, and leaves v as it is if there is none.
func (c *Channel) load(name string, v any) error {
	b, err := c.State.Get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// save writes a state durably.
func (c *Channel) save(name string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = c.State.Put(name, b)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
