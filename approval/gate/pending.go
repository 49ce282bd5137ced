package gate

import "github.com/permesso-dev/permesso/approval"

func openPending(seal sealer, k approval.Key, b []byte) (*approval.Pending, error) {
	body, err := seal.Open(approval.DocPending, k, b)
	if err != nil {
		return nil, err
	}
	return approval.ParsePending(body, k)
}
