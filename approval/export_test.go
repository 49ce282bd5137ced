package approval

// Strict reads b as the strict JSON that every document is made of, whatever
// it holds.
func Strict(b []byte) error {
	var any Raw
	return unmarshal(b, &any)
}

// Encode writes a request as an agent would. The gate never does: it keeps the
// bytes that it got.
func (r *Request) Encode() ([]byte, error) { return marshal(r) }

// Validate is what ParseRequest asks of a request that it could read.
func (r *Request) Validate(id string) error { return r.validate(id) }
