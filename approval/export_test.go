package approval

// Strict reads b as the strict JSON that every document is made of, whatever
// it holds.
func Strict(b []byte) error {
	var any Raw
	return unmarshal(b, &any)
}

// Validate is what ParseRequest asks of a request that it could read.
func (r *Request) Validate(id string) error { return r.validate(id) }
