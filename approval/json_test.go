package approval_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// samples reads a folder of JSON samples: y_ must be accepted, n_ must not, and
// for i_ the reader decides.
func samples(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "[yni]_*.json"))
	require.NoError(t, err)
	found := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		found[filepath.Base(f)] = b
	}
	return found
}

// expected holds our results for samples that RFC 8259 leaves to the reader, and
// for those where we differ from their name.
func expected() map[string]struct {
	accepted bool
	why      string
} {
	type verdict = struct {
		accepted bool
		why      string
	}
	number := verdict{true, "a number of any size is kept as digits"}
	surrogate := verdict{false, "half a surrogate pair is not a character: readers replace it differently"}
	encoding := verdict{false, "only UTF-8, and only well-formed: readers repair it differently"}
	bom := verdict{false, "a byte order mark is not white space"}
	deep := verdict{false, "deeper than 32 levels"}
	duplicate := verdict{false, "readers disagree about which of two equal keys counts"}
	return map[string]verdict{
		// the corpus
		"i_number_double_huge_neg_exp.json":                   number,
		"i_number_huge_exp.json":                              number,
		"i_number_neg_int_huge_exp.json":                      number,
		"i_number_pos_double_huge_exp.json":                   number,
		"i_number_real_neg_overflow.json":                     number,
		"i_number_real_pos_overflow.json":                     number,
		"i_number_real_underflow.json":                        number,
		"i_number_too_big_neg_int.json":                       number,
		"i_number_too_big_pos_int.json":                       number,
		"i_number_very_big_negative_int.json":                 number,
		"i_object_key_lone_2nd_surrogate.json":                surrogate,
		"i_string_1st_surrogate_but_2nd_missing.json":         surrogate,
		"i_string_1st_valid_surrogate_2nd_invalid.json":       surrogate,
		"i_string_incomplete_surrogate_and_escape_valid.json": surrogate,
		"i_string_incomplete_surrogate_pair.json":             surrogate,
		"i_string_incomplete_surrogates_escape_valid.json":    surrogate,
		"i_string_invalid_lonely_surrogate.json":              surrogate,
		"i_string_invalid_surrogate.json":                     surrogate,
		"i_string_inverted_surrogates_U+1D11E.json":           surrogate,
		"i_string_lone_second_surrogate.json":                 surrogate,
		"i_string_UTF-16LE_with_BOM.json":                     encoding,
		"i_string_UTF-8_invalid_sequence.json":                encoding,
		"i_string_UTF8_surrogate_U+D800.json":                 encoding,
		"i_string_invalid_utf-8.json":                         encoding,
		"i_string_iso_latin_1.json":                           encoding,
		"i_string_lone_utf8_continuation_byte.json":           encoding,
		"i_string_not_in_unicode_range.json":                  encoding,
		"i_string_overlong_sequence_2_bytes.json":             encoding,
		"i_string_overlong_sequence_6_bytes.json":             encoding,
		"i_string_overlong_sequence_6_bytes_null.json":        encoding,
		"i_string_truncated-utf-8.json":                       encoding,
		"i_string_utf16BE_no_BOM.json":                        encoding,
		"i_string_utf16LE_no_BOM.json":                        encoding,
		"i_structure_500_nested_arrays.json":                  deep,
		"i_structure_UTF-8_BOM_empty_object.json":             bom,
		"y_object_duplicated_key.json":                        duplicate,
		"y_object_duplicated_key_and_value.json":              duplicate,
		// our own
		"i_number_huge.json":          number,
		"i_number_beyond_floats.json": number,
		"i_number_tiny.json":          number,
		"i_lone_surrogate.json":       surrogate,
		"i_key_lone_surrogate.json":   surrogate,
		"i_bom.json":                  bom,
		"i_latin1.json":               encoding,
		"i_overlong.json":             encoding,
		"i_utf16le.json":              encoding,
		"i_32_levels.json":            {true, "32 levels are allowed"},
	}
}

func TestStrictJSONOnOurSamples(t *testing.T) {
	found := samples(t, filepath.Join("..", "testdata", "json"))
	require.GreaterOrEqual(t, len(found), 40, "the samples of the repository")
	checkSamples(t, found)
}

func TestStrictJSONOnTheCorpus(t *testing.T) {
	found := samples(t, filepath.Join("..", "..", "shared", "corpora", "json"))
	if len(found) == 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "the corpus is missing")
		return // a clone without the corpus runs only the repository's samples
	}
	require.Len(t, found, 318)
	checkSamples(t, found)
}

func checkSamples(t *testing.T, found map[string][]byte) {
	t.Helper()
	table := expected()
	for name, b := range found {
		verdict, listed := table[name]
		require.True(t, listed || name[0] != 'i', "%s: no expected result in the table", name)
		accepted := name[0] == 'y'
		if listed {
			accepted = verdict.accepted
		}
		err := approval.Strict(b)
		require.Equal(t, accepted, err == nil, "%s (%s): %v", name, verdict.why, err)

		// The same value as an agent's argument, kept verbatim.
		data := `{"v":` + string(b) + `}`
		r, err := approval.ParseRequest([]byte(request(`"request_data":`+data)), someID)
		if !accepted {
			require.Error(t, err, "%s inside a request", name)
			require.Less(t, len(err.Error()), 200, name)
			continue
		}
		if err != nil {
			require.ErrorContains(t, err, "nested deeper", "%s: accepted alone", name)
			continue
		}
		require.Equal(t, data, string(r.RequestData), name)
		fields, err := codec.Fields(r.RequestData)
		require.NoError(t, err, name)
		require.Equal(t, string(bytes.Trim(b, " \t\r\n")), string(fields[0].Value), name)
	}
}

func TestDepth(t *testing.T) {
	for _, c := range []struct {
		why, text string
		fine      bool
	}{
		{"no nesting at all", "1", true},
		{"32 lists", strings.Repeat("[", 32) + strings.Repeat("]", 32), true},
		{"33 lists", strings.Repeat("[", 33) + strings.Repeat("]", 33), false},
		{"32 objects", nested(32), true},
		{"33 objects", nested(33), false},
		{"mixed, 33 levels", strings.Repeat(`[{"a":`, 16) + "[]" + strings.Repeat("}]", 16), false},
		{"siblings do not add depth", "[" + strings.Repeat(nested(31)+",", 100) + nested(31) + "]", true},
		{"brackets in a text", `["` + strings.Repeat("[{", 100) + `"]`, true},
		{"brackets after an escaped quotation mark", `["\"` + strings.Repeat("[", 100) + `"]`, true},
		{"an escaped backslash before a quotation mark", `["\\",` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "]", false},
		{"brackets in a key", `{"` + strings.Repeat("[", 100) + `":1}`, true},
	} {
		require.Equal(t, c.fine, codec.CheckDepth([]byte(c.text), codec.MaxDepth) == nil, c.why)
		require.Equal(t, c.fine, approval.Strict([]byte(c.text)) == nil, c.why)
	}
	require.Error(t, approval.Strict([]byte(strings.Repeat("]", 50)+strings.Repeat("[", 80))), "closing brackets first do not lower the depth")
}

// Requests are size-capped before ParseRequest. Without the cap, too, the cost
// must be linear.
func TestHostileDocumentsAreRefusedQuickly(t *testing.T) {
	keys := func(n int, same bool) string {
		var b strings.Builder
		b.WriteString(`{"k":0`)
		for i := range n {
			if same {
				i = 0
			}
			b.WriteString(`,"k` + strconv.Itoa(i) + `":0`)
		}
		return b.String() + "}"
	}
	deep := 100_000
	for _, c := range []struct {
		why, text string
		fine      bool
	}{
		{"100,000 lists, open", strings.Repeat("[", deep), false},
		{"100,000 objects, open", strings.Repeat(`{"a":`, deep), false},
		{"100,000 lists in a request", request(`"request_data":{"a":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "}"), false},
		{"1,000,000 unknown keys", keys(1_000_000, false), false},
		{"1,000,000 times the same key", request(`"request_data":` + keys(1_000_000, true)), false},
		{"1,000,000 keys in request_data", request(`"request_data":` + keys(1_000_000, false)), true},
		{"as many keys as the size limit holds", request(`"request_data":` + keys(22_000, false)), true},
		{"a number of a million digits", request(`"request_data":{"n":1` + strings.Repeat("0", 1_000_000) + "}"), true},
		{"a million digits of expiry", request(`"expires_in_sec":1` + strings.Repeat("0", 1_000_000)), false},
		{"ten megabytes of white space", strings.Repeat(" ", 10<<20), false},
		{"a million backslashes", request(`"request_data":{"s":"` + strings.Repeat(`\\`, 500_000) + `"}`), true},
	} {
		b, start := []byte(c.text), cpuTime(t)
		_, err := approval.ParseRequest(b, someID)
		took := cpuTime(t) - start
		require.Equal(t, c.fine, err == nil, "%s: %v", c.why, err)
		limit := hostileLimit
		if len(c.text) > 10<<20 && c.fine {
			limit *= 4 // forty times the size limit
		}
		require.Less(t, took, limit, c.why)
		if err != nil {
			require.Less(t, len(err.Error()), 200, c.why)
		}
	}
}

// cpuTime is the process's CPU time. Unlike a clock it does not count other
// processes.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano())
}
