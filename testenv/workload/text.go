package workload

import (
	"math/rand/v2"
	"strings"

	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

// hostile are texts that something somewhere gets wrong.
var hostile = []string{
	`'`, `"`, `\`, `\\`, `|`, `\|`, `$1`, `%s`, `--`, `/*`, `;`, `{}`, `{"a":null}`, `NULL`, `null`, `\N`, `\x00`,
	`\u0000`, `E'\n'`, `::text`,
	"a\nb", "a\r\nb", "a\n\nb", "\ttab", " lead", "trail ", "\v\f", "\u0001\u001b[31m", "\u007f",
	"Ünïcödé", "e\u0301", "é", "ﬁ", "ß", "İı", "Ǆ", "数据库", "データベース", "한국어", "עברית", "العربية", "हिन्दी", "ไทย",
	"\u202eright to left\u202c", "zero\u200bwidth", "\ufefffeff", "\u2028line", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
	"👩‍👩‍👧‍👦", "🇳🇵", "👍🏽", "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308",
}

// blank are texts without a word.
var blank = []string{"", " ", "  \t ", "\n", "\n\n", "\r\n", "\u00a0", "\u2003\u3000"}

var words = strings.Fields(`the a of and to in is was for on with by from at this that row table index page lock queue worker
	vector distance model token night river stone copper ` + canary.Text +
	` harbour engine garden winter silver paper window bridge forest`)

// text makes the value of a text column; nil is NULL. Few texts are common to many rows, because the same text must
// be embedded only once.
func text(r *rand.Rand, long bool) any {
	switch n := r.IntN(100); {
	case n < 4:
		return nil
	case n < 9:
		return blank[r.IntN(len(blank))]
	case n < 24:
		return hostile[r.IntN(len(hostile))]
	case n < 34:
		return words[r.IntN(len(words))]
	case long && n < 70:
		return letters(r, 2500+r.IntN(40000))
	default:
		return sentence(r)
	}
}

func sentence(r *rand.Rand) string {
	picked := make([]string, 2+r.IntN(12))
	for i := range picked {
		picked[i] = words[r.IntN(len(words))]
	}
	if r.IntN(6) == 0 {
		picked[r.IntN(len(picked))] = hostile[r.IntN(len(hostile))]
	}
	return strings.Join(picked, " ")
}

// letters are n bytes that do not compress well.
func letters(r *rand.Rand, n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}
