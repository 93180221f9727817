kills differ: a repeated rewind does not find its target
user > one
model > First.
user > two
model > Second.
person > rewind two
reply < input two
log … rewound segment_start(rewind)
context: user one / assistant First.
user > three
model > Third.
context: user one / assistant First. / user three / assistant Third.
person > rewind stale one
reply < refused conflict
person > rewind nothing like it
reply < refused not_found
