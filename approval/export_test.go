package approval

import "github.com/permesso-dev/permesso/approval/codec"

// Strict reads any JSON value by the rules of every document.
func Strict(b []byte) error {
	var any Raw
	return codec.Decode(b, &any)
}

// Validate is ParseRequest's check of a decoded request.
func (r *Request) Validate(id string) error { return r.validate(id) }
