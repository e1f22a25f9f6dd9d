// Java's own client with its default settings: it offers HTTP/2 by Upgrade, as Spring AI and LangChain4j do.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Ask {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newHttpClient();
        for (var stream : new String[] {"false", "true"}) {
            var body = "{\"model\": \"" + System.getenv("MODEL") + "\", \"max_tokens\": 4, \"stream\": " + stream
                + ", \"messages\": [{\"role\": \"user\", \"content\": \"Hi.\"}]}";
            var request = HttpRequest.newBuilder(URI.create(System.getenv("BASE_URL") + "/v1/chat/completions"))
                .header("Authorization", "Bearer " + System.getenv("KEY"))
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            var good = answer.statusCode() == 200 && answer.body().contains("content");
            System.out.println("{\"client\": \"java.net.http\", \"version\": \"" + System.getProperty("java.version")
                + "\", \"call\": \"stream " + stream + "\", \"problem\": "
                + (good ? "null" : "\"" + answer.statusCode() + "\"") + "}");
        }
    }
}
