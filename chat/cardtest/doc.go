// Package cardtest makes requests that try to hide, shift or rename what they ask, and judges whether a
// channel's card shows it. It shares no code with the renderer: it fills templates, reads JSON, escapes and masks
// by itself. Only tests import it.
//
// # What is judged
//
// On a card on which approve is possible, everything that would run can be read: each element of a command, its
// working directory, method, URL, headers and body of an HTTP request, and each member of request_data. A mask
// ‹KIND, N characters› stands for one token of N characters that a rule of the scanner finds, inside one text
// value. A reference ‹name› stands for the argument of that name, whose value stands elsewhere on the card.
//
// Two requests with different effects have different cards. Effects are equal if they are the same JSON values:
// the order of members and the spelling of strings do not count, the spelling of numbers does. Requests that
// differ only in masked secrets of the same length may have the same card.
package cardtest
