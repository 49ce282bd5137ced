package config

import (
	"path/filepath"
	"slices"
	"strings"
)

// publicFiles are keys of files that are not secret.
var publicFiles = []string{"ca_file", "cert_file", "public_key_file"}

// SecretFiles returns the values of keys such as token_file, and the last word
// of each secret header: "Bearer /path/of/the/token".
func (c *Config) SecretFiles() (paths []string) {
	for _, s := range c.Settings {
		key := s.Key[strings.LastIndexByte(s.Key, '.')+1:]
		if path, ok := s.Value.(string); ok && strings.HasSuffix(key, "_file") && !slices.Contains(publicFiles, key) {
			paths = append(paths, path)
		}
	}
	for _, tool := range c.Tools {
		for _, value := range tool.Handler.HTTP.SecretHeaders {
			paths = append(paths, value[strings.LastIndexByte(value, ' ')+1:])
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return !filepath.IsAbs(path) })
	slices.Sort(paths)
	return slices.Compact(paths)
}
