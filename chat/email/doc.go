// Package email is the channel for people who live in their inbox: a card goes
// out as a mail, and one reply decides.
package email
