// What the page begins with: results, the model, or both.

async function begin() {
  if (results) await beginExplorer();
  if (model) beginModel();
  else document.body.dataset.ready = "yes";
}
begin();
