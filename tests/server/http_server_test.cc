#include "server/http/http_server.h"

#include "tests/server/raw_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace rigel::server::http {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

HttpServerOptions small_limits() {
  return {.port = 0, .max_body_bytes = 1000, .max_header_bytes = 2000, .max_unsent_bytes = 1 << 16};
}

/// Answers with what it was asked.
struct EchoServer {
  HttpServer server{
      small_limits(),
      [](const std::shared_ptr<Exchange>& exchange) {
        const Request& request = exchange->request();
        exchange->respond({.content_type = "text/plain",
                           .body = request.method + " " + request.path + " " + request.body});
      },
      {}};
};

TEST(HttpServer, KeepsAConnectionForFurtherRequests) {
  EchoServer echo;
  RawClient client(echo.server.port());
  EXPECT_EQ(client.call("POST", "/a", "one").body, "POST /a one");
  EXPECT_EQ(client.call("GET", "/b?query=1").body, "GET /b ");
  EXPECT_EQ(client.call("POST", "/c", "last", "Connection: close\r\n").headers["connection"],
            "close");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  EchoServer echo;
  RawClient client(echo.server.port());
  client.send(spell_request("POST", "/1", "first") + spell_request("POST", "/2", "second") +
              spell_request("GET", "/3", ""));
  EXPECT_EQ(client.read_response().body, "POST /1 first");
  EXPECT_EQ(client.read_response().body, "POST /2 second");
  EXPECT_EQ(client.read_response().body, "GET /3 ");
}

TEST(HttpServer, TakesARequestThatArrivesByteByByte) {
  EchoServer echo;
  RawClient client(echo.server.port());
  for (const char byte : spell_request("POST", "/slow", "body")) {
    client.send({&byte, 1});
  }
  EXPECT_EQ(client.read_response().body, "POST /slow body");
}

TEST(HttpServer, TakesChunkedBodies) {
  EchoServer echo;
  RawClient client(echo.server.port());
  client.send("POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "POST /x abcde");
}

TEST(HttpServer, RefusesWhatIsTooLargeOrMalformed) {
  EchoServer echo;
  const auto status_of = [&](const std::string& bytes) {
    RawClient client(echo.server.port());
    client.send(bytes);
    const RawResponse response = client.read_response();
    EXPECT_THAT(response.body, HasSubstr("\"error\"")) << bytes.substr(0, 80);
    EXPECT_TRUE(client.is_closed_by_server());
    return response.status;
  };
  EXPECT_EQ(status_of(spell_request("POST", "/", std::string(1001, 'x'))), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" +
                      std::string(0xffff, 'x')),
            413);
  EXPECT_EQ(status_of(spell_request("GET", "/", "", "X-Long: " + std::string(3000, 'x') + "\r\n")),
            431);
  EXPECT_EQ(status_of("GET " + std::string(70000, 'x')), 431);
  EXPECT_EQ(status_of("not http at all\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
}

TEST(HttpServer, AcceptsABodyOfExactlyTheLimit) {
  EchoServer echo;
  EXPECT_EQ(RawClient(echo.server.port()).call("POST", "/", std::string(1000, 'x')).status, 200);
}

TEST(HttpServer, GivesLeaveToSendABody) {
  EchoServer echo;
  RawClient client(echo.server.port());
  client.send("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.read_until("100 Continue\r\n\r\n"));
  client.send("abc");
  EXPECT_TRUE(client.read_until("POST /x abc"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  EchoServer echo;
  RawClient client(echo.server.port());
  client.send(spell_request("HEAD", "/x", ""));
  EXPECT_EQ(client.read_response(/*without_body=*/true).headers["content-length"], "8");
  EXPECT_EQ(client.call("GET", "/y").body, "GET /y ");
}

TEST(HttpServer, SpeaksHttp10) {
  EchoServer echo;
  RawClient client(echo.server.port());
  client.send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "GET /old ");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, StreamsInChunksAndWithoutThemToHttp10) {
  HttpServer server(small_limits(),
                    [](const std::shared_ptr<Exchange>& exchange) {
                      exchange->begin_stream("text/plain");
                      exchange->write("one ");
                      exchange->write("two");
                      exchange->end_stream();
                    },
                    {});
  RawClient client(server.port());
  EXPECT_EQ(client.call("GET", "/").body, "one two");
  EXPECT_EQ(client.call("GET", "/").body, "one two");
  RawClient old(server.port());
  old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.read_response().body, "one two");
}

/// Keeps exchanges open until told, and counts clients that went away.
struct HoldingServer {
  void handle(const std::shared_ptr<Exchange>& exchange) {
    exchange->on_client_gone([this] {
      const std::lock_guard lock(mutex);
      ++num_gone;
      changed.notify_all();
    });
    const std::lock_guard lock(mutex);
    held.push_back(exchange);
    changed.notify_all();
  }
  bool wait(const std::function<bool()>& holds, std::chrono::milliseconds timeout = 5s) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, timeout, holds);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Exchange>> held;
  int num_gone = 0;
  std::vector<int> statuses;
  HttpServer server{small_limits(), [this](const auto& exchange) { handle(exchange); },
                    [this](const ExchangeReport& report) {
                      const std::lock_guard lock(mutex);
                      statuses.push_back(report.status);
                      changed.notify_all();
                    }};
};

TEST(HttpServer, NoticesWithinAHundredMillisecondsThatAClientWentAway) {
  for (const bool by_reset : {false, true}) {
    HoldingServer holding;
    RawClient client(holding.server.port());
    client.send(spell_request("GET", "/", ""));
    ASSERT_TRUE(holding.wait([&] { return holding.held.size() == 1; }));
    by_reset ? client.reset() : client.close();
    EXPECT_TRUE(holding.wait([&] { return holding.num_gone == 1; }, 100ms))
        << (by_reset ? "RST" : "FIN");
    EXPECT_TRUE(holding.wait([&] { return holding.statuses == std::vector<int>{499}; }));
    EXPECT_EQ(holding.server.num_active(), 0);
    holding.held.front()->respond({.body = "too late"});  // must do no harm
  }
}

TEST(HttpServer, CountsAnAnswerAsSentWhenTheClientLeavesRightAfterIt) {
  for (int i = 0; i < 200; ++i) {
    HoldingServer holding;
    RawClient client(holding.server.port());
    client.send(spell_request("GET", "/", ""));
    ASSERT_TRUE(holding.wait([&] { return holding.held.size() == 1; }));
    holding.held.front()->respond({.body = "answer"});
    EXPECT_EQ(client.read_response().body, "answer");
    client.close();
    ASSERT_TRUE(holding.wait([&] { return holding.statuses.size() == 1; }));
    EXPECT_EQ(holding.statuses.front(), 200);
    EXPECT_EQ(holding.num_gone, 0);
  }
}

TEST(HttpServer, TellsALateAskerThatTheClientIsGone) {
  HoldingServer holding;
  RawClient client(holding.server.port());
  client.send(spell_request("GET", "/", ""));
  ASSERT_TRUE(holding.wait([&] { return holding.held.size() == 1; }));
  client.close();
  ASSERT_TRUE(holding.wait([&] { return holding.num_gone == 1; }));
  bool told = false;
  holding.held.front()->on_client_gone([&] { told = true; });
  EXPECT_TRUE(told);
}

TEST(HttpServer, GivesUpAClientThatDoesNotRead) {
  HoldingServer holding;
  RawClient client(holding.server.port(), /*receive_buffer_bytes=*/4096);
  client.send(spell_request("GET", "/", ""));
  ASSERT_TRUE(holding.wait([&] { return holding.held.size() == 1; }));
  const std::shared_ptr<Exchange> exchange = holding.held.front();
  exchange->begin_stream("text/plain");
  const std::string block(8192, 'x');
  std::chrono::nanoseconds longest{0};
  bool is_alive = true;
  for (int i = 0; i < 100'000 && is_alive; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    is_alive = exchange->write(block);
    longest = std::max<std::chrono::nanoseconds>(longest, std::chrono::steady_clock::now() - begun);
  }
  EXPECT_FALSE(is_alive);
  EXPECT_LT(longest, 500ms) << "a writer waited for the client";
  EXPECT_TRUE(holding.wait([&] { return holding.num_gone == 1; }));
}

TEST(HttpServer, StopsWithExchangesOpen) {
  HoldingServer holding;
  RawClient client(holding.server.port());
  client.send(spell_request("GET", "/", ""));
  ASSERT_TRUE(holding.wait([&] { return holding.held.size() == 1; }));
  holding.server.stop();
  EXPECT_EQ(holding.num_gone, 1);
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_FALSE(holding.held.front()->write("late"));
}

TEST(HttpServer, SaysWhyItCannotListen) {
  EchoServer first;
  try {
    HttpServer second({.port = first.server.port()}, {}, {});
    FAIL() << "two servers on one port";
  } catch (const std::runtime_error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr(std::to_string(first.server.port())));
  }
}

}  // namespace
}  // namespace rigel::server::http
