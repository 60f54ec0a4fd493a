package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// MostQuestions is how many are asked at most.
const MostQuestions = 1000

// ReadQuestions reads a file of questions: each line is a text, with keys of rows that should be found behind tabs, or
// a JSON object with text and keys.
func ReadQuestions(from io.Reader) ([]Question, error) {
	const widest = 1 << 20
	var list []Question
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, widest)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		q := Question{}
		if strings.HasPrefix(line, "{") {
			strict := json.NewDecoder(strings.NewReader(line))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&q); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		} else {
			parts := strings.Split(line, "\t")
			q.Text, q.Keys = parts[0], parts[1:]
		}
		if strings.TrimSpace(q.Text) == "" {
			return nil, fmt.Errorf("line %d has no text", n)
		}
		if list = append(list, q); len(list) > MostQuestions {
			return nil, fmt.Errorf("more than %d questions", MostQuestions)
		}
	}
	return list, lines.Err()
}

// OfTexts makes questions of rows' own texts: the beginning of each.
func OfTexts(texts []string, most int) []Question {
	const characters = 120
	var list []Question
	for _, text := range texts[:min(len(texts), most)] {
		words := strings.Join(strings.Fields(text), " ")
		if r := []rune(words); len(r) > characters {
			words = string(r[:characters])
		}
		list = append(list, Question{Text: words})
	}
	return list
}
