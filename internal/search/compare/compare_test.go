package compare

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	abc, cba, xyz := []string{"a", "b", "c"}, []string{"c", "b", "a"}, []string{"x", "y", "z"}
	for name, c := range map[string]struct{ got, want float64 }{
		"overlap of the same":         {Overlap(abc, cba), 1},
		"overlap of others":           {Overlap(abc, xyz), 0},
		"overlap of less":             {Overlap(abc, abc[:1]), 1.0 / 3},
		"overlap of nothing":          {Overlap(nil, nil), 1},
		"order of the same":           {Correlation(abc, abc), 1},
		"order turned round":          {Correlation(abc, cba), -1},
		"order of one row":            {Correlation(abc[:1], abc[:1]), 1},
		"order of nothing":            {Correlation(nil, nil), 1},
		"recall":                      {Recall(abc, []string{"b", "x"}), 0.5},
		"recall of nothing found":     {Recall(nil, abc), 0},
		"recall of more than ten":     {Recall(strings.Split("abcdefghij", ""), strings.Split("abcdefghijkl", "")), 1},
		"gain of the best order":      {NDCG(abc, abc[:2]), 1},
		"gain of the second place":    {NDCG(abc, abc[1:2]), 1 / math.Log2(3)},
		"gain of nothing":             {NDCG(xyz, abc), 0},
		"the middle":                  {percentile([]float64{3, 1, 2}, 50), 2},
		"the last":                    {percentile([]float64{3, 1, 2}, 99), 3},
		"of none":                     {percentile(nil, 50), 0},
		"others come behind the last": {Correlation(abc, xyz), Correlation(xyz, abc)},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if got := Correlation(abc, xyz); got >= 0 {
		t.Errorf("rows that have nothing in common: %v", got)
	}
}

func TestReadQuestions(t *testing.T) {
	t.Parallel()
	list, err := ReadQuestions(strings.NewReader("how\n\n a question\t1\t2|x\n{\"text\": \"as JSON\", \"keys\": [\"3\"]}\n"))
	if err != nil || len(list) != 3 || list[1].Text != "a question" || !slices.Equal(list[1].Keys, []string{"1", "2|x"}) ||
		list[2].Text != "as JSON" || !slices.Equal(list[2].Keys, []string{"3"}) {
		t.Errorf("%+v, %v", list, err)
	}
	for text, want := range map[string]string{
		"{\"words\": 1}": "line 1", "a\n\t1\n{}": "has no text", strings.Repeat("a\n", MostQuestions+1): "more than",
	} {
		if _, err := ReadQuestions(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	got := OfTexts([]string{" a\n b ", strings.Repeat("é", 300), "c"}, 2)
	if len(got) != 2 || got[0].Text != "a b" || len([]rune(got[1].Text)) != 120 {
		t.Errorf("%+v", got)
	}
}
