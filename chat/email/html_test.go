package email

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlatten(t *testing.T) {
	for _, c := range []struct{ in, want, why string }{
		{"1<br>2", "1\n2\n", "line breaks"},
		{"<div>1</div><div>2</div>", "1\n2\n", "blocks"},
		{"<p>1</p><p>2</p>", "1\n\n2\n", "paragraphs have margins"},
		{`<p class="MsoNormal">1</p><p class="MsoNormal">2</p>`, "1\n2\n", "Word's have none"},
		{`<p style="margin:0">1</p><p style="margin:0px 0 0">2</p>`, "1\n2\n", "nor these"},
		{"<div>1</div><div><br></div><div>2</div>", "1\n\n2\n", "an empty line"},
		{"  4 \n  go\t<b>on</b> ", "4 go on\n", "blanks collapse"},
		{"4<b> go</b>on", "4 goon\n", "and only where there are some"},
		{"4&nbsp;&nbsp;go", "4  go\n", "no-break spaces do not"},
		{"<pre>4 a\n  b</pre>", "4 a\n  b\n", "preformatted"},
		{`<div style="white-space:pre-wrap">4 a
b</div>`, "4 a\nb\n", "the same by style"},
		{"1<blockquote>2<blockquote>3</blockquote></blockquote>4", "1\n\n> 2\n>\n>> 3\n\n4\n", "quotation"},
		{`1<div class="gmail_quote">2</div>`, "1\n> 2\n", "by its class"},
		{`1<div id="ydp12yahoo_quoted_3" class="x">2</div>`, "1\n> 2\n", "by its id"},
		{`1<div id="divRplyFwdMsg">2</div>3`, "1\n" + quoteStart + "\n2\n3\n", "everything below is quoted"},
		{`1<div style="border:none;border-top:solid #E1E1E1 1.0pt">2</div>`, "1\n________________________________\n2\n", "Outlook's line"},
		{"1<hr>2", "1\n________________________________\n2\n", "a rule"},
		{`1<div class="gmail_signature">2</div>`, "1\n--\n2\n", "signature"},
		{"<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1 2\n3\n", "rows are lines"},
		{"<ul><li>1</li></ul>", "• 1\n", "bullets are visible"},
		{"<ol><li>a</li><li>b</li></ol>", "1. a\n2. b\n", "numbers, too: with a dot they are no code"},
		{"<title>1</title><script>2</script><style>3</style><!-- 4 --><noscript>5</noscript><template>6</template>", "", "none of it is text"},
		{`<img alt="1" src="http://example.org/x.png">2`, "2\n", "nothing is loaded, no alternative text"},
		{`<a href="https://example.org">1</a>`, "1\n", "only the visible part of a link"},
		{`<span hidden>1</span><i style="DISPLAY : none !important">2</i><i style="visibility:hidden">3</i>x`, "x\n", "hidden"},
		{`<i style="font-size:0">1</i><i style="font-size:0.1px">2</i><i style="opacity:0">3</i><i style="mso-hide:all">4</i>x`, "x\n", "too small to see"},
		{`<i style="max-height:0;overflow:hidden">1</i><i style="text-indent:-9999px">2</i>x`, "x\n", "moved out of sight"},
		{`<i style="color:white">1</i><i style="color:#fff">2</i><font color="#FEFEFE">3</font><i style="color:rgb(255, 255, 255)">4</i><i style="color:transparent">5</i>x`, "x\n", "white on white"},
		{`<div style="background:#222;color:white">1</div>`, "1\n", "white on black is visible"},
		{`<div bgcolor="black"><i style="color:#000">1</i>x</div>`, "x\n", "black on black is not"},
		{`<div style="color:white"><i style="color:black">1</i></div>`, "1\n", "an inner color counts"},
		{`<i style="font-size:10px;line-height:0">1</i>`, "1\n", "a visible style"},
	} {
		require.Equal(t, c.want, flatten(c.in).text, "%s: %s", c.why, c.in)
	}
}

func TestStruckOut(t *testing.T) {
	for in, want := range map[string]bool{
		"<s>1</s>": true, "<del>1</del>": true, "<strike>1</strike>": true, `<i style="text-decoration: underline line-through">1</i>`: true,
		"<blockquote><s>1</s></blockquote>2": false, "<s> </s>1": false, "1": false, `<i style="text-decoration:underline">1</i>`: false,
	} {
		require.Equal(t, want, flatten(in).struck, in)
	}
}

func TestStyleSheets(t *testing.T) {
	require.True(t, flatten("<style>.x { display : none }</style>1").sheetHides)
	require.True(t, flatten("<div>1<style>p{font-size:0}</style></div>").sheetHides)
	require.False(t, flatten("<style>p.MsoNormal{margin:0in;font-size:11.0pt} .y{font-size:0.9em}</style>1").sheetHides)
}
