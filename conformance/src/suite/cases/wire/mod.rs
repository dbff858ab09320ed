//! The routes and the shapes of their answers (spec 6.1 to 6.3).

mod admission;
mod live;
mod routes;
mod stream;

use crate::suite::case::Need::{Alone, Process, Shared};

crate::suite_cases! {
    "wire.001" "H-2" Shared, "GET /healthz is 204, to anybody" => routes::healthz;
    "wire.002" "H-4" Shared, "a known path with another method is 405" => routes::other_methods;
    "wire.003" "H-4" Shared, "an unknown path is 404" => routes::unknown_paths;
    "wire.004" "H-9" Shared, "an admission is answered with streamUrl, offset and a submissionId `s-<n>-<6>`" => admission::shape;
    "wire.005" "H-5" Shared, "a missing message is an empty prompt" => admission::no_message;
    "wire.006" "H-5" Shared, "a dial that is no text and a malformed notice are dropped" => admission::dropped;
    "wire.007" "H-6" Shared, "a bad definition is 400 and its words start with the Agent's slot" => admission::bad_definition;
    "wire.008" "H-6" Shared, "a working directory that is not absolute is 400 and its words start with the slot" => admission::bad_frame;
    "wire.009" "H-6" Shared, "a model that cannot be resolved is 400 and its words start with the slot" => admission::bad_model;
    "wire.010" "6.2" Shared, "both views of an unknown conversation are 404" => routes::unknown_conversation;
    "wire.011" "6.2" Shared, "the history has v, conversationId, messages of user and assistant, and the settlements" => stream::history;
    "wire.012" "6.2" Shared, "the updates are a list, with stream-next-offset and stream-up-to-date" => stream::updates;
    "wire.013" "H-9" Shared, "an offset that cannot be parsed reads from the start" => stream::bad_offset;
    "wire.014" "6.3" Shared, "every event has its conversation and a growing position; a message has id, role and parts" => stream::events;
    "wire.015" "6.2" Shared, "a parked long poll is answered when something is appended" => stream::parked;
    @slow "wire.016" "6.2" Shared, "a long poll with nothing to say is 204 after 25 s" => stream::held;
    "wire.017" "6.2" Shared, "POST /echo prints each event and says how many" => routes::echo;
    "wire.018" "6.2" Shared, "names in a path are percent-decoded: a slash, a blank and a letter beyond ASCII" => admission::names;
    "wire.019" "6.2" Shared, "reading from an offset gives what came after it, once" => stream::from_offset;
    "wire.020" "6.2" Alone, "PUT /agents frees what is neither live nor busy" => live::frees;
    "wire.021" "6.2" Alone, "PUT /agents with a body that is partly wrong frees nothing" => live::whole_body;
    "wire.022" "D-28" Shared, "unknown keys of a definition are ignored" => admission::unknown_keys;
    "wire.023" "H-10" Shared, "the definition is read again at each Submission" => admission::read_again;
    "wire.024" "3.3" Shared, "a model beside the definition is for this Submission alone" => admission::dial;
    "wire.025" "wire.md" Shared, "a prompt over 1 MiB is 400, a body over 4 MiB is 413" => admission::bounds;
    "wire.026" "D-31" Shared, "an admissionId that is known seats nothing and gets the first answer, with what it carried" => admission::repeated;
    "wire.027" "D-12" Shared, "of more than 32 notices the answer says which were taken" => admission::too_many_notices;
    "wire.028" "D-26" Shared, "streamUrl is absolute, has the conversation as one segment, and can be read" => admission::stream_url;
    "wire.029" "D-4" Process(&[]), "an owner epoch lower than one that was seen is 409, on every route" => routes::epoch;
}
