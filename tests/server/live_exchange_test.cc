#include "server/http/live_exchange.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace rigel::server::http {
namespace {

using namespace std::chrono_literals;

// A connection and its server may be destroyed as soon as the exchange has let go of the client: a writer that is about
// to wake the connection must have done so by then.
TEST(LiveExchange, LetsGoOfTheClientOnlyOnceNoWakeRuns) {
  for (void (LiveExchange::*let_go)() :
       {&LiveExchange::client_gone, &LiveExchange::forget_client}) {
    std::promise<void> woken;
    std::promise<void> released;
    LiveExchange exchange(
        Request{}, WireForm{}, /*max_unsent_bytes=*/1000,
        [&] {
          woken.set_value();
          released.get_future().wait();
        },
        [] {});
    std::thread writer([&] { exchange.respond({.body = "answer"}); });
    woken.get_future().wait();
    auto gone = std::async(std::launch::async, [&] { (exchange.*let_go)(); });
    EXPECT_EQ(gone.wait_for(50ms), std::future_status::timeout) << "let go while a wake runs";
    released.set_value();
    gone.wait();
    writer.join();
  }
}

TEST(LiveExchange, WakesNobodyOnceTheClientIsGone) {
  int num_calls = 0;
  LiveExchange exchange(
      Request{}, WireForm{}, /*max_unsent_bytes=*/1, [&] { ++num_calls; }, [&] { ++num_calls; });
  exchange.client_gone();
  exchange.begin_stream("text/plain");
  EXPECT_FALSE(exchange.write("more than fits"));
  exchange.end_stream();
  exchange.respond({.body = "too late"});
  EXPECT_EQ(num_calls, 0);
}

TEST(LiveExchange, WakesOnceUntilItIsDrained) {
  int num_wakes = 0;
  LiveExchange exchange(
      Request{}, WireForm{}, /*max_unsent_bytes=*/1000, [&] { ++num_wakes; }, [] {});
  exchange.begin_stream("text/plain");
  EXPECT_TRUE(exchange.write("one"));
  EXPECT_TRUE(exchange.write("two"));
  EXPECT_EQ(num_wakes, 1);
  const LiveExchange::Drained drained = exchange.drain();
  EXPECT_NE(drained.bytes.find("two"), std::string::npos);
  EXPECT_FALSE(drained.is_last);
  exchange.end_stream();
  EXPECT_EQ(num_wakes, 2);
  EXPECT_TRUE(exchange.drain().is_last);
}

}  // namespace
}  // namespace rigel::server::http
