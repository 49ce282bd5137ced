package gate

import "github.com/permesso-dev/permesso/approval"

// A pending's short id is the first 8 digits of its id, the last 8 where those are taken,
// then more of the last; dashes do not count. It is taken while a pending or a record has it, in all workspaces:
// people type it, so what they read under it on an older card must not be another request.
// A collision is never a reason to refuse: ids that begin with a time collide often.

// shortest is the number of digits of most short ids.
const shortest = 8

// assignShortID returns the first free short id of k and takes it. It is the whole id if
// another workspace has the same one.
func (x *index) assignShortID(k approval.Key) string {
	for _, short := range shortIDsOf(k.ID) {
		if x.isFreeShortID(short, k) {
			x.takeShortID(short, k)
			return short
		}
	}
	return k.ID
}

// shortIDsOf lists the short ids that a request may have, the best first.
func shortIDsOf(id string) []string {
	digits := approval.Digits(id)
	all := []string{approval.ShortID(id)}
	for n := shortest; n <= len(digits); n++ {
		all = append(all, digits[len(digits)-n:])
	}
	return all
}

// isFreeShortID reports whether no other request has short, or a beginning of it.
func (x *index) isFreeShortID(short string, k approval.Key) bool {
	for n := shortest; n <= len(short); n++ {
		if other, ok := x.shortIDs[short[:n]]; ok && other != k {
			return false
		}
	}
	return true
}

// takeShortID takes a short id, and the first 8 digits of a longer one: no other short id
// may be its beginning.
func (x *index) takeShortID(short string, k approval.Key) {
	for _, s := range []string{approval.ShortID(short), short} {
		if _, ok := x.shortIDs[s]; !ok {
			x.shortIDs[s] = k
		}
	}
}

// knowID takes what may be the short id of a request of which only the id is known: the
// first 8 digits, or, where two requests have the same, the last 8 of both. People type no
// invalid id.
func (x *index) knowID(k approval.Key) {
	if !approval.ValidID(k.ID) {
		return
	}
	other, ok := x.shortIDs[approval.ShortID(k.ID)]
	switch {
	case !ok:
		x.takeShortID(approval.ShortID(k.ID), k)
	case other != k:
		for _, each := range []approval.Key{k, other} {
			x.takeShortID(shortIDsOf(each.ID)[1], each)
		}
	}
}

func (x *index) forgetShortIDs(k approval.Key) {
	for _, short := range shortIDsOf(k.ID) {
		for _, s := range []string{short, approval.ShortID(short)} {
			if x.shortIDs[s] == k {
				delete(x.shortIDs, s)
			}
		}
	}
}

// isKnown reports whether a pending, a claim or a record begins with the same digits.
func (x *index) isKnown(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.shortIDs[approval.ShortID(k.ID)]
	return ok
}

// addClaimed is knowID for a request that no person is asked about.
func (x *index) addClaimed(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.knowID(k)
}
