//! What model servers do to a stream (the public faults of group F): answers that are whole but odd, and answers that break.

mod broken;
mod odd;
mod pieces;

use crate::suite::case::Need::Shared;

crate::suite_cases! {
    "stream.001" "F32" Shared, "a stream in pieces of one byte, letters and emoji split, is read whole" => pieces::one_byte;
    "stream.002" "F01" Shared, "a chunk without a choice is passed over" => odd::no_choices;
    "stream.003" "F04" Shared, "[DONE] after content ends an answer that never said a finish reason" => odd::no_finish;
    "stream.004" "F08" Shared, "tool calls run by their presence, whatever the finish reason says" => odd::calls_with_stop;
    "stream.005" "F09" Shared, "parallel calls that all have index 0 stay apart" => odd::index_zero;
    "stream.006" "F10" Shared, "a call without index and id is one call" => odd::no_index;
    "stream.007" "F12" Shared, "interleaved fragments go to the call of their index" => odd::interleaved;
    "stream.008" "F14" Shared, "a call without type is a call" => odd::no_type;
    "stream.009" "F34" Shared, "an answer without usage is an answer" => odd::no_usage;
    "stream.010" "F32" Shared, "CRLF, comments and event fields are read as SSE has them" => pieces::crlf_and_comments;
    "stream.011" "F15" Shared, "a stream that is cut is asked for again, and nothing of it ran" => broken::cut;
    "stream.012" "F15" Shared, "an error in the stream is asked again, and nothing of it ran" => broken::error_inside;
    "stream.013" "F06" Shared, "a clean close without a terminal is a cut stream" => broken::clean_close;
    "stream.014" "H-22" Shared, "429 with retry-after is waited for and asked again" => broken::retry_after;
    "stream.015" "F24" Shared, "500 is asked again" => broken::server_error;
    "stream.016" "F23" Shared, "arguments cut at the output limit never run, and the model is told why" => odd::length_cut;
    "stream.017" "F27" Shared, "empty arguments are {}" => odd::empty_arguments;
    "stream.018" "F29" Shared, "an answer of thinking alone is no answer: the model is asked once more" => odd::thinking_only;
    "stream.019" "F18" Shared, "blank text before a call is no text" => odd::blank_before_call;
    "stream.020" "F31" Shared, "thinking is not shown as text" => odd::thinking_hidden;
    "stream.021" "F34" Shared, "the request asks for a stream, and for usage" => pieces::asks_for_usage;
    "stream.022" "F36" Shared, "a context overflow is not asked again and again" => broken::overflow;
    "stream.023" "F35" Shared, "usage in every chunk harms nothing" => odd::usage_everywhere;
    "stream.024" "F30" Shared, "empty answers are asked again at most a few times, then the Submission ends" => odd::empty_for_ever;
}
