//! Memory kills from outside: the streams, the list, the verdict, who was told (spec 9.4, 10).

mod list;
mod making;
mod said;

use crate::suite::case::Need::{Alone, Process};

crate::suite_cases! {
    "kills.001" "N-24" Alone, "a kill is on the stream of every busy conversation and in the list, under one id" => said::both_paths;
    "kills.002" "N-25" Alone, "an idle conversation's stream gets nothing" => said::idle;
    "kills.003" "M-6" Alone, "every running bash call gets the exact verdict as its result" => said::verdict;
    "kills.004" "N-27" Alone, "told names the conversations whose bash call returned the verdict" => said::told;
    "kills.005" "N-28" Alone, "a model that writes or waits is not told" => said::not_told;
    "kills.006" "M-14" Process(&[]), "the list survives kill -9, with the same ids" => list::survives;
    "kills.007" "M-16" Alone, "of 17 kills the oldest is gone and the order of the rest unchanged" => list::seventeen;
    "kills.008" "M-20" Process(&[("JR2_MENU_ONLY", "1")]), "the Instance Harness answers an empty list" => list::instance;
    "kills.009" "M-15" Alone, "the list is {\"kills\":[…]} of id, at, peak, limit and told" => list::shape;
    "kills.010" "M-18" Process(&[]), "a kept file that the Agent edited does not stop the Harness; what parses is kept" => list::edited;
    "kills.011" "M-11" Process(&[]), "a call that a restart cut told no one" => list::cut_short;
    "kills.012" "10.2" Alone, "the Agent's processes die, and the Turn goes on" => said::goes_on;
    "kills.013" "M-7" Process(&[]), "a kill logs its line" => said::logged;
    "kills.014" "N-20" Alone, "a kill's event is on the stream once, with id, at, peak and limit" => said::event;
    "kills.015" "M-6" Alone, "a call that starts after the kill gets its own result" => said::later_call;
    "kills.016" "N-24" Alone, "a conversation whose Submission still waits for its surface hears it on its stream" => said::before_prompt;
    "kills.017" "M-19" Alone, "a kill that is on a stream is in the list already" => said::list_first;
}
