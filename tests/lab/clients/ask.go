// Go's own client with its default settings, whole and streamed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
)

func ask(stream bool) error {
	body, _ := json.Marshal(map[string]any{
		"model": os.Getenv("MODEL"), "max_tokens": 4, "stream": stream,
		"messages": []map[string]string{{"role": "user", "content": "Hi."}},
	})
	request, err := http.NewRequest("POST", os.Getenv("BASE_URL")+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	if !stream {
		text, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(text), `"content"`) {
			err = fmt.Errorf("no content")
		}
		return err
	}
	last, events := "", 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "data: ") {
			last, events = strings.TrimPrefix(line, "data: "), events+1
		}
	}
	if last != "[DONE]" || events < 2 {
		return fmt.Errorf("%d events, the last is %q", events, last)
	}
	return nil
}

func main() {
	for _, stream := range []bool{false, true} {
		said := map[string]any{
			"client": "net/http", "version": runtime.Version(), "call": fmt.Sprintf("stream %t", stream), "problem": nil,
		}
		if err := ask(stream); err != nil {
			said["problem"] = err.Error()
		}
		line, _ := json.Marshal(said)
		fmt.Println(string(line))
	}
}
