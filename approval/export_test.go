package approval

// Strict reads any JSON value by the rules of every document.
func Strict(b []byte) error {
	var any Raw
	return unmarshal(b, &any)
}

// Validate is ParseRequest's check of a decoded request.
func (r *Request) Validate(id string) error { return r.validate(id) }
