package chat

import "github.com/permesso-dev/permesso/approval"

// Former is a request that another one resubmits, and how it was answered.
type Former struct {
	Request  *approval.Pending  // as much of it as is kept
	Decision *approval.Decision // nil: nobody decided about it
}
