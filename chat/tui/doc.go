// Package tui is the terminal UI: a list of what waits, one request with its card, and its decision.
//
// # Keys that count
//
// A key decides only about the card on the screen, and only if that card had been there, unchanged, for 400 ms when
// the key was typed. What is on the screen is known from the terminal itself: it answers queries in order, between the
// keys, see barrier. So neither a slow line nor a slow machine makes a key count that was typed for what was there
// before. A terminal that does not answer cannot decide.
//
// Nothing that arrives moves the row under the cursor or takes the focus: new requests are added at the end, and a row
// whose request was decided stays until the person leaves the list. Enter alone decides nothing that runs. Pasted text is text.
//
// # Output
//
// An agent's bytes reach the terminal only as package chat renders them, and row checks once more. A row is one row
// of the screen, whatever it holds: what is longer goes on in further rows, which are marked.
package tui
