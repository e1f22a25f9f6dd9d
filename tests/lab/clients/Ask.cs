// C#: .NET's own HttpClient, whole and streamed.

using System;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Text;

public static class Ask
{
    static string Problem(bool stream)
    {
        var client = new HttpClient();
        var body = "{\"model\": \"" + Environment.GetEnvironmentVariable("MODEL") + "\", \"max_tokens\": 4, \"stream\": "
            + (stream ? "true" : "false") + ", \"messages\": [{\"role\": \"user\", \"content\": \"Hi.\"}]}";
        var request = new HttpRequestMessage(
            HttpMethod.Post, Environment.GetEnvironmentVariable("BASE_URL") + "/v1/chat/completions");
        request.Headers.Authorization =
            new AuthenticationHeaderValue("Bearer", Environment.GetEnvironmentVariable("KEY"));
        request.Content = new StringContent(body, Encoding.UTF8, "application/json");
        var answer = client.SendAsync(request, HttpCompletionOption.ResponseHeadersRead).Result;
        if (!answer.IsSuccessStatusCode) return "status " + (int)answer.StatusCode;
        var events = 0;
        string last = "", whole = "", line;
        using (var lines = new StreamReader(answer.Content.ReadAsStreamAsync().Result))
            while ((line = lines.ReadLine()) != null)
            {
                whole += line;
                if (!line.StartsWith("data: ")) continue;
                last = line.Substring(6);
                events++;
            }
        if (!whole.Contains("\"content\"")) return "no content";
        return stream && (last != "[DONE]" || events < 2) ? events + " events, no [DONE]" : null;
    }

    public static void Main()
    {
        foreach (var stream in new[] { false, true })
        {
            string problem;
            try { problem = Problem(stream); }
            catch (Exception error) { problem = error.GetBaseException().Message; }
            Console.WriteLine("{\"client\": \"HttpClient\", \"version\": \"" + Environment.Version
                + "\", \"call\": \"stream " + (stream ? "true" : "false") + "\", \"problem\": "
                + (problem == null ? "null" : "\"" + problem.Replace("\"", "'") + "\"") + "}");
        }
    }
}
