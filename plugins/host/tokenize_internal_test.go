package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

func TestReadTokens_BelievesNothing(t *testing.T) {
	t.Parallel()
	answer := func(ends ...uint32) *pluginpb.TokenizeResponse {
		return &pluginpb.TokenizeResponse{Tokens: []*pluginpb.Tokens{{Ends: ends}}, Around: 2}
	}
	got, err := readTokens(answer(1, 1, 3), []string{"abc"})
	if diff := cmp.Diff(embed.Tokens{Ends: [][]int{{1, 1, 3}}, Around: 2}, got); diff != "" || err != nil {
		t.Errorf("a good answer: %v, %s", err, diff)
	}
	for name, tt := range map[string]struct {
		resp *pluginpb.TokenizeResponse
		code string
	}{
		"none":            {&pluginpb.TokenizeResponse{}, "wrong_count"},
		"beyond the text": {answer(1, 4), "bad_answer"},
		"going down":      {answer(2, 1), "bad_answer"},
		"huge":            {answer(1 << 31), "bad_answer"},
		"too many":        {answer(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), "bad_answer"},
	} {
		_, err := readTokens(tt.resp, []string{"abc"})
		if class, code := embed.Classify(err); err == nil || class != embed.Data || code != tt.code {
			t.Errorf("%s: %v, want a data error %q", name, err, tt.code)
		}
	}
}
