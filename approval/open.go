package approval

import "fmt"

// Opener verifies the MAC of a document. It fails unless the MAC is correct for that kind
// and key.
type Opener interface {
	Open(d Doc, k Key, file []byte) (body []byte, err error)
}

// OpenPending verifies and parses a pending.
func OpenPending(o Opener, k Key, file []byte) (*Pending, error) {
	return open(o, DocPending, k, file, ParsePending)
}

// OpenDecision verifies and parses a decision.
func OpenDecision(o Opener, k Key, file []byte) (*Decision, error) {
	return open(o, DocDecision, k, file, ParseDecision)
}

// OpenClaim verifies and parses a claim.
func OpenClaim(o Opener, k Key, file []byte) (*Claim, error) {
	return open(o, DocClaim, k, file, ParseClaim)
}

// OpenRecord verifies and parses a record.
func OpenRecord(o Opener, k Key, file []byte) (*Record, error) {
	return open(o, DocRecord, k, file, ParseRecord)
}

func open[T any](o Opener, d Doc, k Key, file []byte, parse func([]byte, Key) (*T, error)) (*T, error) {
	body, err := o.Open(d, k, file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	return parse(body, k)
}
