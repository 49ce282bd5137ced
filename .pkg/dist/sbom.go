package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Source: SPDX 2.3, https://spdx.github.io/spdx-spec/v2.3/.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []component    `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	component struct {
		Name       string      `json:"name"`
		ID         string      `json:"SPDXID"`
		Version    string      `json:"versionInfo"`
		File       string      `json:"packageFileName,omitempty"`
		Download   string      `json:"downloadLocation"`
		Analyzed   bool        `json:"filesAnalyzed"`
		Concluded  string      `json:"licenseConcluded"`
		Declared   string      `json:"licenseDeclared"`
		Copyright  string      `json:"copyrightText"`
		Purpose    string      `json:"primaryPackagePurpose,omitempty"`
		Checksums  []checksum  `json:"checksums,omitempty"`
		References []reference `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// sbom lists each program, the modules that are linked into it, and Go itself, as the program's own build
// information names them.
func sbom(w io.Writer, version string, programs []string, at time.Time) error {
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "permesso-" + version,
		Namespace: "https://github.com/permesso-dev/permesso/sbom/" + version,
		Creation:  creation{at.Format(time.RFC3339), []string{"Organization: The permesso developers", "Tool: make dist"}},
		Packages:  []component{}, Relationships: []relationship{},
	}
	seen := map[string]bool{}
	for _, file := range programs {
		if err := d.add(file, version, seen); err != nil {
			return err
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", " ")
	return out.Encode(d)
}

// add lists one program. Its folder is named by its platform.
func (d *document) add(file, version string, seen map[string]bool) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	platform := filepath.Base(filepath.Dir(file))
	program := "SPDXRef-permesso-" + idOf(platform)
	d.Packages = append(d.Packages, component{
		Name: "permesso", ID: program, Version: version, File: platform + "/" + filepath.Base(file), Download: "https://github.com/permesso-dev/permesso",
		Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "Copyright 2026 the permesso developers", Purpose: "APPLICATION",
		Checksums:  []checksum{{"SHA256", hex.EncodeToString(sum[:])}},
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + info.Main.Path + "@" + version}},
	})
	d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", program})
	parts := []string{"stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return fmt.Errorf("%s: module %s is replaced, so its version says nothing", file, m.Path)
		}
		parts = append(parts, m.Path+"@"+m.Version)
	}
	slices.Sort(parts)
	for _, part := range parts {
		name, v, _ := strings.Cut(part, "@")
		id := "SPDXRef-" + idOf(part)
		if !seen[part] {
			seen[part] = true
			d.Packages = append(d.Packages, component{
				Name: name, ID: id, Version: v, Download: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown, Purpose: "LIBRARY",
				References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + part}},
			})
		}
		d.Relationships = append(d.Relationships, relationship{program, "CONTAINS", id})
	}
	return nil
}

// idOf is a name as an SPDX identifier: letters, digits, dots and hyphens.
func idOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, name)
}
