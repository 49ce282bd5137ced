package home

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// longestSecret is the maximum length in bytes of a password or token in a file.
const longestSecret = 1024

// SecretLine reads the one line of a file that only its owner may read.
func SecretLine(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file", file)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s: readable by other users; chmod 600 %s", file, file)
	}
	b, err := io.ReadAll(io.LimitReader(f, longestSecret+1))
	if err != nil {
		return "", err
	}
	line := strings.TrimRight(string(b), "\r\n")
	if line == "" || len(b) > longestSecret || strings.ContainsAny(line, "\r\n\x00") {
		return "", fmt.Errorf("%s: must hold one line of at most %d bytes", file, longestSecret)
	}
	return line, nil
}

// SecretWord is secretLine for a secret without spaces, such as a token.
func SecretWord(file string) (string, error) {
	line, err := SecretLine(file)
	if err != nil {
		return "", err
	}
	word := strings.TrimRight(line, " \t")
	if word == "" || strings.ContainsAny(word, " \t") {
		return "", fmt.Errorf("%s: must hold one line without spaces", file)
	}
	return word, nil
}
