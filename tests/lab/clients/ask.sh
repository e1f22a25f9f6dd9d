#!/bin/sh
# curl, whole and streamed; a streamed answer ends with [DONE].
version=$(curl --version | cut -d ' ' -f 2 | head -n 1)
for stream in false true; do
  said=$(curl --fail-with-body -sSN "$BASE_URL/v1/chat/completions" \
    -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \
    -d "{\"model\": \"$MODEL\", \"max_tokens\": 4, \"stream\": $stream, \"messages\": [{\"role\": \"user\", \"content\": \"Hi.\"}]}")
  problem='"no answer"'
  case "$stream $said" in
    "false "*'"content"'*) problem=null ;;
    "true "*'"content"'*'data: [DONE]'*) problem=null ;;
  esac
  echo "{\"client\": \"curl\", \"version\": \"$version\", \"call\": \"stream $stream\", \"problem\": $problem}"
done
