// Package email reaches people by mail: a card goes out, and a single reply to
// it decides.
package email
