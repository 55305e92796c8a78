//! A market of ten thousand traders, each a session with a log of its own, and the same market again from the same seed.
//!
//! An exchange delegates to a hundred brokers, each of them to its traders. Every day the price goes down the tree, orders come up, and the price moves. A
//! trader's memory is its log: what it owns is counted from what it said before.
//!
//! ```text
//! cargo run --example market                          # seed 7
//! cargo run --release --example market -- --seed 8    # another market
//! cargo run --release --example market -- --traders 100000    # takes 2 GiB of memory
//! ```
//!
//! prints
//!
//! ```text
//! day    price     buy    sell  traded
//!   1   100.00    5407    4590    4590
//!   2   100.81    5253    4744    4744
//!   3   101.32    5097    1328    1328
//! seed 7: the digest of all 10101 logs is 9f8d8c9857b6818859c6a0ad6c0b22f174afbf04f0dd5c88249efa91c84a08e6
//!
//! a small one, twice, and with another seed:
//! seed 7: the digest of all 301 logs is 3a4b4bbfee95bc01afc180c325194b69d3a32362d9e65a822b349c5d4edcef03
//! seed 7: the digest of all 301 logs is 3a4b4bbfee95bc01afc180c325194b69d3a32362d9e65a822b349c5d4edcef03
//! seed 8: the digest of all 301 logs is 58271bd2a02d08a0074e715b62641c6d61a28aa9bbf1a93e232694cceb5ec7a7
//! ```
#![allow(clippy::print_stdout)]

use std::time::Instant;

use greenroom::{Delegate, Delegated, Runtime, Turn, TurnEnd, TurnError, rand::RngExt, seeded, session::message::text_of};
use serde_json::json;

const BROKERS: usize = 100;
const DAYS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (seed, traders) = (option("--seed", 7)?, option("--traders", 10_000)?);
    let began = Instant::now();
    println!("{}", play(seed, usize::try_from(traders)?)?);
    eprintln!("{:.1} s", began.elapsed().as_secs_f64()); // not from the log: this differs from run to run

    println!("\na small one, twice, and with another seed:");
    for seed in [seed, seed, seed + 1] {
        println!("{}", play(seed, 200)?.lines().last().unwrap_or_default());
    }
    Ok(())
}

fn option(name: &str, default: u64) -> Result<u64, std::num::ParseIntError> {
    std::env::args().skip_while(|word| word != name).nth(1).map_or(Ok(default), |value| value.parse())
}

fn play(seed: u64, traders: usize) -> Result<String, Box<dyn std::error::Error>> {
    seeded::block_on(simulate(seed, traders))?
}

async fn simulate(seed: u64, traders: usize) -> Result<String, Box<dyn std::error::Error>> {
    let runtime = Runtime::builder()
        .closure("exchange", exchange)
        .closure("broker", move |turn: Turn| broker(turn, traders / BROKERS))
        .closure("trader", trade)
        .seed(seed)
        .open("memory:")
        .await?;
    let root = runtime.root("exchange", format!("market {seed}")).await?;
    root.send("10000").await?; // the first price, in cents
    root.quiescent().await?;

    let table = runtime.last_answer(root.id()).await?.unwrap_or_default();
    let logs = 1 + BROKERS + traders / BROKERS * BROKERS;
    let summary = format!("{table}\nseed {seed}: the digest of all {logs} logs is {}", runtime.digest().await?);
    runtime.shutdown().await;
    Ok(summary)
}

/// Serves the opening of the market: a few days, one after the other.
async fn exchange(turn: Turn) -> Result<TurnEnd, TurnError> {
    let Ok(mut price) = turn.text().parse::<i64>() else { return Ok(TurnEnd::Completed) };
    let mut brokers = Vec::new();
    let mut lines = vec!["day    price     buy    sell  traded".to_owned()];
    for day in 1..=DAYS {
        if day == 1 {
            for number in 0..BROKERS {
                let Delegated { child, .. } = turn.delegate(Delegate::new("broker", format!("broker {number}"), price.to_string())).await?;
                brokers.push(child);
            }
        } else {
            for broker in &brokers {
                turn.send_message(broker, price.to_string()).await?;
            }
        }
        let heard = turn.notes().len();
        turn.await_children().await?;
        let [buy, sell] = orders(&turn, heard);
        lines.push(format!("{day:>3} {:>5}.{:02} {buy:>7} {sell:>7} {:>7}", price / 100, price % 100, buy.min(sell)));
        // A tenth up if all want to buy, a tenth down if all want to sell.
        price += price * (buy - sell) / (10 * (buy + sell).max(1));
    }
    turn.say(lines.join("\n"))?;
    Ok(TurnEnd::Completed)
}

/// Serves one day: passes the price on to its traders and reports the sum of their orders.
async fn broker(turn: Turn, traders: usize) -> Result<TurnEnd, TurnError> {
    if turn.message().is_none() {
        return Ok(TurnEnd::Completed); // a notice that came after the day had ended
    }
    let known = turn.list_agents().await?;
    for entry in &known {
        turn.send_message(entry.id(), turn.text()).await?;
    }
    if known.is_empty() {
        let mut rng = turn.rng();
        for number in 0..traders {
            let worth = rng.random_range(8_000..=12_500);
            turn.delegate(Delegate::new("trader", format!("trader {number}"), turn.text()).params(json!({ "worth": worth }))).await?;
        }
    }
    turn.await_children().await?;
    let [buy, sell] = orders(&turn, 0);
    turn.report(format!("{buy} {sell}"), true).await?;
    Ok(TurnEnd::Completed)
}

/// Serves one day: buys below what the share is worth to it, sells what it owns above that.
async fn trade(turn: Turn) -> Result<TurnEnd, TurnError> {
    let Ok(price) = turn.text().parse::<i64>() else { return Ok(TurnEnd::Completed) };
    let said: Vec<String> = turn.history().iter().map(|message| text_of(&message.content)).collect();
    let has_said = |order: &str| said.iter().filter(|text| *text == order).count();
    let owned = 2 + has_said("1 0") - has_said("0 1");
    let worth = turn.params().and_then(|params| params.get("worth")?.as_i64()).unwrap_or(10_000);
    let mood = turn.rng().random_range(90..=110);
    let order = match worth * mood / 100 {
        worth if worth > price => "1 0",
        worth if worth < price && owned > 0 => "0 1",
        _ => "0 0",
    };
    turn.say(order)?;
    turn.report(order, true).await?;
    Ok(TurnEnd::Completed)
}

/// Adds up the orders that were reported, leaving out the first `skip` notes.
fn orders(turn: &Turn, skip: usize) -> [i64; 2] {
    let mut sum = [0, 0];
    for note in turn.notes().iter().skip(skip).filter(|note| note.source.kind() == "subagent-report") {
        for (total, part) in sum.iter_mut().zip(text_of(&note.content).split(' ')) {
            *total += part.parse::<i64>().unwrap_or(0);
        }
    }
    sum
}
